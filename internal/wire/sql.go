package wire

import "strings"

// split takes the text of a simple Query apart into its statements, without
// the comments and blanks before each. Semicolons in quoted text and comments
// don't count. A text without a statement comes back as it is.
func split(sql string) []string {
	if !strings.Contains(sql, ";") {
		return []string{trim(sql)}
	}
	var statements []string
	from := 0
	for i := 0; i <= len(sql); {
		if i < len(sql) && sql[i] != ';' {
			i += token(sql[i:], i > 0 && (sql[i-1] == 'E' || sql[i-1] == 'e'))
			continue
		}
		if s := trim(sql[from:i]); s != "" && !isComment(s) {
			statements = append(statements, s)
		}
		i++
		from = i
	}
	if statements == nil {
		return []string{sql}
	}
	return statements
}

// trim cuts off blanks at both ends and comments that something follows.
func trim(sql string) string {
	sql = strings.TrimSpace(sql)
	for isComment(sql) {
		rest := strings.TrimSpace(sql[token(sql, false):])
		if rest == "" {
			break
		}
		sql = rest
	}
	return sql
}

func isComment(s string) bool { return strings.HasPrefix(s, "--") || strings.HasPrefix(s, "/*") }

// token measures the quoted text or comment that s begins with, or one byte.
// A backslash escapes in a text that an E stands before.
func token(s string, escapes bool) int {
	switch {
	case s[0] == '\'' || s[0] == '"':
		for i := 1; i < len(s); i++ {
			if s[i] == '\\' && escapes && s[0] == '\'' {
				i++
			} else if s[i] == s[0] {
				return i + 1 // a doubled quote begins another quoted text
			}
		}
		return len(s)
	case s[0] == '$':
		return dollar(s)
	case strings.HasPrefix(s, "--"):
		return through(s, 0, "\n")
	case strings.HasPrefix(s, "/*"):
		return block(s)
	}
	return 1
}

func dollar(s string) int {
	end := strings.IndexByte(s[1:], '$') + 1
	if end == 0 || strings.ContainsAny(s[1:end], " \t\r\n'\"(),;") || end > 1 && s[1] >= '0' && s[1] <= '9' {
		return 1
	}
	return through(s, end+1, s[:end+1])
}

func block(s string) int {
	depth := 0
	for i := 0; i < len(s); {
		switch {
		case strings.HasPrefix(s[i:], "/*"):
			depth, i = depth+1, i+2
		case strings.HasPrefix(s[i:], "*/"):
			depth, i = depth-1, i+2
			if depth == 0 {
				return i
			}
		default:
			i++
		}
	}
	return len(s)
}

// through measures s up to the end of the first mark after from.
func through(s string, from int, mark string) int {
	if i := strings.Index(s[from:], mark); i >= 0 {
		return from + i + len(mark)
	}
	return len(s)
}

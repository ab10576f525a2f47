package main

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// screen is what is shown, in 80 columns.
type screen struct {
	mu    sync.Mutex
	out   io.Writer
	began time.Time
}

func newScreen(out io.Writer) *screen { return &screen{out: out, began: time.Now()} }

func (s *screen) print(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = fmt.Fprintln(s.out, text)
}

// say tells what happens, and when.
func (s *screen) say(format string, args ...any) {
	s.print(fmt.Sprintf("%5.1fs  ", time.Since(s.began).Seconds()) + fmt.Sprintf(format, args...))
}

// more goes on with what was said.
func (s *screen) more(format string, args ...any) {
	s.print("        " + fmt.Sprintf(format, args...))
}

func (s *screen) title(text string) { s.print("\n" + text) }

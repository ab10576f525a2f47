package ledger

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"sort"
	"strings"

	"github.com/effectonce/effectonce/internal/canonical"
)

// JSON returns the encoding of one JSON document as encoding/json writes it,
// with an identity made of T's fields: their names in JSON, their types and
// options. It accepts exactly what it would have written itself: a document with
// an unknown member, with a missing one that isn't omitempty, or with a number
// that T can't hold is refused. So a new member with omitempty leaves the
// recorded results readable, and any other change of T's form does not.
//
// A type with methods of its own for JSON is known by its name only. A type that
// has no JSON form is reported by [NewOperation].
func JSON[T any]() Encoding[T] {
	contract, err := jsonContract(reflect.TypeFor[T](), map[reflect.Type]int{})
	return Encoding[T]{
		identity: encodingIdentity("json", 1, contract),
		encode:   encodeJSON[T],
		decode:   decodeJSON[T],
		max:      maxJSON,
		exact:    true,
		fault:    err,
	}
}

// maxJSON is PostgreSQL's limit of one value: the store's own is smaller.
const maxJSON = 1 << 30

func encodeJSON[T any](v T) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, redactJSON(err)
	}
	return data, nil
}

func decodeJSON[T any](data []byte) (v T, err error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		return v, redactJSON(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return v, errors.New("more than one document")
	}
	again, err := json.Marshal(v)
	if err != nil {
		return v, redactJSON(err)
	}
	if bytes.Equal(again, data) {
		return v, nil
	}
	was, err := canonical.JSON(data)
	if err != nil {
		return v, redactJSON(err)
	}
	is, err := canonical.JSON(again)
	if err != nil {
		return v, redactJSON(err)
	}
	if !bytes.Equal(was, is) {
		return v, fmt.Errorf("%T doesn't hold the document exactly: a member is missing, null, of another spelling, or a number too large", v)
	}
	return v, nil
}

// redactJSON keeps an error's kind and place, and drops what it quotes of the
// document.
func redactJSON(err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("not JSON at byte %d", syntax.Offset)
	case errors.As(err, &kind):
		return fmt.Errorf("at byte %d: not a value of type %s", kind.Offset, kind.Type)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return errors.New("the document ends early")
	default:
		return fmt.Errorf("a member is unknown, or the type refuses a value (%T)", err)
	}
}

// jsonContract is a text that differs for types of different JSON forms. It may
// also differ for types of the same form, whose documents are then compared.
func jsonContract(t reflect.Type, seen map[reflect.Type]int) (string, error) {
	if n, ok := seen[t]; ok {
		return fmt.Sprintf("#%d", n), nil // a type within itself
	}
	seen[t] = len(seen)
	defer delete(seen, t)
	if hasOwnForm(t) {
		return "own:" + t.PkgPath() + ":" + t.String(), nil
	}
	switch t.Kind() {
	case reflect.Bool, reflect.String, reflect.Float32, reflect.Float64,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return t.Kind().String(), nil
	case reflect.Pointer:
		return jsonOf("?", t.Elem(), seen)
	case reflect.Slice:
		return jsonOf("[]", t.Elem(), seen)
	case reflect.Array:
		return jsonOf(fmt.Sprintf("[%d]", t.Len()), t.Elem(), seen)
	case reflect.Map:
		key, err := jsonOf("map ", t.Key(), seen)
		if err != nil {
			return "", err
		}
		return jsonOf(key+" ", t.Elem(), seen)
	case reflect.Interface:
		if t.NumMethod() == 0 {
			return "any", nil
		}
	case reflect.Struct:
		return jsonStruct(t, seen)
	}
	return "", fmt.Errorf("the type %s has no JSON form that can be read back: change it, or define an Encoding", t)
}

func jsonOf(prefix string, t reflect.Type, seen map[reflect.Type]int) (string, error) {
	contract, err := jsonContract(t, seen)
	return prefix + contract, err
}

func jsonStruct(t reflect.Type, seen map[reflect.Type]int) (string, error) {
	var members []string
	var faults []error
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		if tag == "-" || !f.IsExported() && !f.Anonymous {
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		if name == "" && !f.Anonymous {
			name = f.Name
		}
		contract, err := jsonContract(f.Type, seen)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s.%s: %w", t.Name(), f.Name, err))
		}
		members = append(members, fmt.Sprintf("%q %s %q", name, contract, options))
	}
	sort.Strings(members)
	return "{" + strings.Join(members, "; ") + "}", errors.Join(faults...)
}

// hasOwnForm reports whether the type writes its JSON itself.
func hasOwnForm(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer || t.Kind() == reflect.Interface {
		return false
	}
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Marshaler]()) || p.Implements(reflect.TypeFor[encoding.TextMarshaler]())
}

// Package strictjson decodes JSON objects so that no two readers can understand them differently: member names match exactly, letter case
// included, none comes twice, numbers are plain integers, null stands for nothing, and nothing follows the object. encoding/json lets the last
// of two names win, matches them without regard to case and turns a lone surrogate into another letter; between a proxy, a signature check and
// a stock counter each of these is a way to be read as something else than was checked.
package strictjson

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// maxDepth bounds the nesting of objects and arrays; nothing that is decoded here is deeper than four.
const maxDepth = 32

// Error says what is wrong with a document, and where.
type Error struct {
	Field   string // path of the member, such as "items[0].quantity"; empty for the document itself
	Problem string // what is wrong, without the path
}

// Error implements error.
func (e *Error) Error() string {
	if e.Field == "" {
		return e.Problem
	}
	return e.Field + ": " + e.Problem
}

// Option changes how Unmarshal reads.
type Option func(*decoder)

// AllowUnknown lets members pass that the target does not know, as a reader of records must that a newer version may write.
func AllowUnknown() Option { return func(d *decoder) { d.allowUnknown = true } }

// Unmarshal decodes data, which must be one JSON object, into the struct that v points to. Members are matched by the name in the field's json
// tag. Supported field types: string, bool, signed integers, structs, slices, pointers to these (nil when the member is absent), and
// what implements encoding.TextUnmarshaler (from a string). Absent members leave their field as it was. Every refusal is an *Error. v is
// undefined after an error. Unmarshal panics when v is not a pointer to a struct or a field has another type: that is a mistake in the program.
func Unmarshal(data []byte, v any, options ...Option) error {
	target := reflect.ValueOf(v)
	if target.Kind() != reflect.Pointer || target.Elem().Kind() != reflect.Struct {
		panic("strictjson: Unmarshal needs a pointer to a struct, not " + target.Type().String())
	}
	if !utf8.Valid(data) {
		return &Error{Problem: "is not UTF-8"}
	}
	if err := checkSurrogates(data); err != nil {
		return err
	}
	d := decoder{json: json.NewDecoder(bytes.NewReader(data))}
	d.json.UseNumber()
	for _, option := range options {
		option(&d)
	}
	first, err := d.token("")
	if err != nil {
		return err
	}
	if first != json.Delim('{') {
		return &Error{Problem: "must be a JSON object"}
	}
	if err := d.object("", target.Elem(), 1); err != nil {
		return err
	}
	if _, err := d.json.Token(); !errors.Is(err, io.EOF) {
		return &Error{Problem: "something follows the JSON object"}
	}
	return nil
}

type decoder struct {
	json         *json.Decoder
	allowUnknown bool
}

func (d *decoder) token(path string) (json.Token, error) {
	token, err := d.json.Token()
	switch {
	case err == nil:
		return token, nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, &Error{Field: path, Problem: "JSON ends too early"}
	}
	return nil, &Error{Field: path, Problem: "is not JSON: " + err.Error()}
}

// object reads the members of an object whose opening brace has been read.
func (d *decoder) object(path string, target reflect.Value, depth int) error {
	known := fieldsOf(target.Type())
	return d.members(path, depth, func(name, memberPath string) error {
		index, ok := known[name]
		if !ok {
			if d.allowUnknown {
				return d.skip(memberPath, depth)
			}
			return &Error{Field: memberPath, Problem: "is not known here"}
		}
		return d.value(memberPath, target.Field(index), depth)
	})
}

// members calls member for each member of an object, with its name read and its value not, and refuses a name that comes twice.
func (d *decoder) members(path string, depth int, member func(name, path string) error) error {
	if depth > maxDepth {
		return &Error{Field: path, Problem: fmt.Sprintf("is nested deeper than %d levels", maxDepth)}
	}
	seen := make(map[string]struct{}, 8)
	for d.json.More() {
		token, err := d.token(path)
		if err != nil {
			return err
		}
		name := token.(string) // the decoder lets nothing else stand here
		memberPath := join(path, name)
		if _, twice := seen[name]; twice {
			return &Error{Field: memberPath, Problem: "comes twice"}
		}
		seen[name] = struct{}{}
		if err := member(name, memberPath); err != nil {
			return err
		}
	}
	_, err := d.token(path) // the closing brace
	return err
}

func (d *decoder) value(path string, target reflect.Value, depth int) error {
	if target.Kind() == reflect.Pointer {
		target.Set(reflect.New(target.Type().Elem()))
		return d.value(path, target.Elem(), depth)
	}
	token, err := d.token(path)
	if err != nil {
		return err
	}
	if text, ok := target.Addr().Interface().(encoding.TextUnmarshaler); ok {
		s, ok := token.(string)
		if !ok {
			return &Error{Field: path, Problem: "must be a string, not " + describe(token)}
		}
		if err := text.UnmarshalText([]byte(s)); err != nil {
			return &Error{Field: path, Problem: err.Error()}
		}
		return nil
	}
	switch target.Kind() {
	case reflect.String:
		s, ok := token.(string)
		if !ok {
			return &Error{Field: path, Problem: "must be a string, not " + describe(token)}
		}
		target.SetString(s)
	case reflect.Bool:
		b, ok := token.(bool)
		if !ok {
			return &Error{Field: path, Problem: "must be true or false, not " + describe(token)}
		}
		target.SetBool(b)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return setInteger(path, target, token)
	case reflect.Struct:
		if token != json.Delim('{') {
			return &Error{Field: path, Problem: "must be an object, not " + describe(token)}
		}
		return d.object(path, target, depth+1)
	case reflect.Slice:
		if token != json.Delim('[') {
			return &Error{Field: path, Problem: "must be an array, not " + describe(token)}
		}
		return d.array(path, target, depth+1)
	default:
		panic("strictjson: cannot decode into a field of type " + target.Type().String())
	}
	return nil
}

func (d *decoder) array(path string, target reflect.Value, depth int) error {
	if depth > maxDepth {
		return &Error{Field: path, Problem: fmt.Sprintf("is nested deeper than %d levels", maxDepth)}
	}
	list := reflect.MakeSlice(target.Type(), 0, 4)
	for i := 0; d.json.More(); i++ {
		element := reflect.New(target.Type().Elem()).Elem()
		if err := d.value(path+"["+strconv.Itoa(i)+"]", element, depth); err != nil {
			return err
		}
		list = reflect.Append(list, element)
	}
	target.Set(list)
	_, err := d.token(path) // the closing bracket
	return err
}

func setInteger(path string, target reflect.Value, token json.Token) error {
	number, ok := token.(json.Number)
	if !ok {
		return &Error{Field: path, Problem: "must be an integer, not " + describe(token)}
	}
	if strings.ContainsAny(number.String(), ".eE") || number == "-0" {
		return &Error{Field: path, Problem: "must be an integer without fraction or exponent"}
	}
	n, err := strconv.ParseInt(number.String(), 10, target.Type().Bits())
	if err != nil {
		return &Error{Field: path, Problem: fmt.Sprintf("is an integer that does not fit %d bits", target.Type().Bits())}
	}
	target.SetInt(n)
	return nil
}

// skip reads a value that nobody wants, with the same rules for names.
func (d *decoder) skip(path string, depth int) error {
	token, err := d.token(path)
	if err != nil {
		return err
	}
	switch token {
	case json.Delim('{'):
		return d.members(path, depth+1, func(_, memberPath string) error { return d.skip(memberPath, depth+1) })
	case json.Delim('['):
		if depth >= maxDepth {
			return &Error{Field: path, Problem: fmt.Sprintf("is nested deeper than %d levels", maxDepth)}
		}
		for d.json.More() {
			if err := d.skip(path+"[]", depth+1); err != nil {
				return err
			}
		}
		_, err := d.token(path)
		return err
	}
	return nil
}

func describe(token json.Token) string {
	switch t := token.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case string:
		return "a string"
	case json.Number:
		return "a number"
	case json.Delim:
		if t == '[' {
			return "an array"
		}
	}
	return "an object"
}

// join quotes a name that could be mistaken for part of the path, or would make the message hard to read.
func join(path, name string) string {
	for _, r := range name {
		plain := r == '_' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z'
		if !plain {
			name = strconv.QuoteToASCII(name)
			break
		}
	}
	if len(name) > 64 {
		name = name[:64] + "…"
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

var fieldCache sync.Map // reflect.Type → map[string]int; never grows beyond the structs of the program

func fieldsOf(t reflect.Type) map[string]int {
	if cached, ok := fieldCache.Load(t); ok {
		return cached.(map[string]int)
	}
	fields := make(map[string]int, t.NumField())
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "-" || !field.IsExported() {
			continue
		}
		if name == "" {
			name = field.Name
		}
		fields[name] = i
	}
	fieldCache.Store(t, fields)
	return fields
}

// checkSurrogates refuses \u escapes that are half of a pair: the decoder would silently make U+FFFD of them.
func checkSurrogates(data []byte) error {
	for i := 0; i < len(data); i++ {
		if data[i] != '\\' {
			continue
		}
		unit, ok := escape(data[i:])
		if !ok { // another escape, such as \" or \\: step over both letters
			i++
			continue
		}
		i += 5
		if unit < 0xd800 || unit > 0xdfff {
			continue
		}
		low, ok := escape(data[i+1:])
		if unit > 0xdbff || !ok || low < 0xdc00 || low > 0xdfff {
			return &Error{Problem: "holds half of a surrogate pair"}
		}
		i += 6
	}
	return nil
}

// escape reads \uXXXX at the start of data.
func escape(data []byte) (uint64, bool) {
	if len(data) < 6 || data[0] != '\\' || data[1] != 'u' {
		return 0, false
	}
	unit, err := strconv.ParseUint(string(data[2:6]), 16, 16)
	return unit, err == nil
}

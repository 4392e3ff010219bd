// Package plainjson is encoding/json with a short way for scalars (integers, strings, booleans, nil and the empty
// struct), and to read maps of strings. Bytes, values and errors are the same as those of encoding/json.
package plainjson

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// Marshal is json.Marshal.
func Marshal(v any) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return []byte("null"), nil
	case bool:
		return strconv.AppendBool(nil, v), nil
	case int:
		return strconv.AppendInt(nil, int64(v), 10), nil
	case int64:
		return strconv.AppendInt(nil, v, 10), nil
	case struct{}:
		return []byte("{}"), nil
	case string:
		if !isPlain(v, "\"\\<>&") {
			break
		}
		data := make([]byte, 0, len(v)+2)
		return append(append(append(data, '"'), v...), '"'), nil
	}
	return json.Marshal(v)
}

// Unmarshal is json.Unmarshal. What the short way does not know, also every error, is left to encoding/json.
func Unmarshal(data []byte, v any) error {
	if !unmarshalPlain(data, v) {
		return json.Unmarshal(data, v)
	}
	return nil
}

// unmarshalPlain reports whether it has decoded data into v. If not, it has not changed v.
func unmarshalPlain(data []byte, v any) bool {
	switch v := v.(type) {
	case *bool:
		yes := string(data) == "true"
		return put(v, yes, yes || string(data) == "false")
	case *int:
		n, ok := parseInt(data)
		return put(v, int(n), ok && int64(int(n)) == n)
	case *int64:
		n, ok := parseInt(data)
		return put(v, n, ok)
	case *string:
		s, ok := parseString(data)
		return put(v, s, ok)
	case *any:
		return put(v, nil, string(data) == "null")
	case *struct{}:
		return v != nil && string(data) == "{}"
	case *map[string]string:
		if v == nil || *v != nil { // encoding/json adds to a map that is there
			return false
		}
		m := parseStrings(data)
		return put(v, m, m != nil)
	}
	return false
}

// put stores the value if it is ok and v is not nil. It reports whether it has.
func put[T any](v *T, value T, ok bool) bool {
	if v == nil || !ok {
		return false
	}
	*v = value
	return true
}

// parseString parses a plain string.
func parseString(data []byte) (s string, ok bool) {
	n := len(data)
	if n < 2 || data[0] != '"' || data[n-1] != '"' || !isPlain(data[1:n-1], "\"\\") {
		return "", false
	}
	return string(data[1 : n-1]), true
}

// parseStrings parses an object of plain strings, as encoding/json and Postgres write it. It returns nil for any other
// text.
func parseStrings(data []byte) map[string]string {
	n := len(data)
	if n < 2 || data[0] != '{' || data[n-1] != '}' {
		return nil
	}
	m := map[string]string{}
	for data = data[1 : n-1]; len(data) > 0; {
		name, rest, ok := cutString(data, ':')
		if !ok {
			return nil
		}
		value, rest, ok := cutString(rest, ',')
		if !ok || len(rest) == 0 && data[len(data)-1] != '"' { // a comma at the end
			return nil
		}
		m[name], data = value, rest
	}
	return m
}

// cutString cuts a plain string from the front of data, and the bytes after it: the separator, with or without a space,
// or the end.
func cutString(data []byte, separator byte) (s string, rest []byte, ok bool) {
	if len(data) == 0 || data[0] != '"' {
		return "", nil, false
	}
	end := 1 + bytes.IndexByte(data[1:], '"')
	if end == 0 || !isPlain(data[1:end], "\\") {
		return "", nil, false
	}
	s, rest = string(data[1:end]), data[end+1:]
	if len(rest) == 0 {
		return s, nil, true
	}
	if rest[0] != separator {
		return "", nil, false
	}
	return s, bytes.TrimPrefix(rest[1:], []byte(" ")), true
}

// isPlain reports whether s consists of printable ASCII characters other than those in except. In a string of JSON they
// stand for themselves.
func isPlain[S string | []byte](s S, except string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
		for j := range len(except) {
			if s[i] == except[j] {
				return false
			}
		}
	}
	return true
}

// parseInt parses an integer of at most 18 digits, as JSON writes it: such a number fits into 64 bits.
func parseInt(data []byte) (n int64, ok bool) {
	digits := data
	if len(digits) > 0 && digits[0] == '-' {
		digits = digits[1:]
	}
	if len(digits) == 0 || len(digits) > 18 || digits[0] == '0' && len(digits) > 1 {
		return 0, false
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	if len(digits) < len(data) {
		n = -n
	}
	return n, true
}

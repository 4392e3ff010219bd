package store

import (
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// An arrayColumn is one array that a statement unnests.
type arrayColumn[T any] struct {
	name  string               // as the statement calls it
	typ   string               // as the statement casts it
	array func(items []T) any  // the argument: one element for each item
	same  func(items []T) bool // of a shared column, whether all items have the same value; nil for the others
}

// columns are the arrays that a statement unnests into one row for each item. They are declared beside the statement.
type columns[T any] []arrayColumn[T]

// columnsOf returns given, the columns of a statement that unnests $2 and the arguments after it. It panics if the
// names, the types or the order of the columns differ from the statement's.
func columnsOf[T any](sql string, given ...arrayColumn[T]) columns[T] {
	var got []string
	for _, c := range given {
		got = append(got, c.name+" "+c.typ)
	}
	want, err := unnested(sql)
	if err != nil {
		panic(fmt.Sprintf("store: %v: %s", err, sql))
	}
	for i := range max(len(want), len(got)) {
		if i >= len(want) || i >= len(got) || want[i] != got[i] {
			panic(fmt.Sprintf("store: a statement unnests the columns\n\t%s\nand gets\n\t%s", strings.Join(want, ", "),
				strings.Join(got, ", ")))
		}
	}
	for i, c := range given {
		fills := fmt.Sprintf("coalesce(u.%s, ($%d::%s)[1])", c.name, 2+i, c.typ)
		if shared := c.same != nil; shared != strings.Contains(sql, fills) {
			panic(fmt.Sprintf("store: a statement must read its column %s by %s if that is shared, and only then: %s",
				c.name, fills, sql))
		}
	}
	return given
}

// args returns the statement's arguments: the namespace, the columns filled from items, and others.
func (cs columns[T]) args(namespace string, items []T, others ...any) []any {
	args := make([]any, 1, 1+len(cs)+len(others))
	args[0] = namespace
	for _, c := range cs {
		given := items
		if len(items) > 1 && c.same != nil && c.same(items) {
			given = items[:1]
		}
		args = append(args, c.array(given))
	}
	return append(args, others...)
}

var unnestedAsU = regexp.MustCompile(`unnest\((\$2::[^)]*)\)( WITH ORDINALITY)?\s+AS u \(([^)]*)\)`)

// unnested returns the columns that a statement unnests as u, each as its name and type: "run_id uuid[]".
func unnested(sql string) ([]string, error) {
	found := unnestedAsU.FindStringSubmatch(sql)
	if found == nil {
		return nil, fmt.Errorf("there is no unnest($2::…) AS u (…)")
	}
	arrays, names := strings.Split(found[1], ","), strings.Split(found[3], ",")
	if found[2] != "" { // the last name is that of the ordinality
		names = names[:len(names)-1]
	}
	if len(arrays) != len(names) {
		return nil, fmt.Errorf("%d arrays have %d names", len(arrays), len(names))
	}
	for i, array := range arrays {
		number, typ, _ := strings.Cut(strings.TrimSpace(array), "::")
		if want := fmt.Sprint("$", 2+i); number != want {
			return nil, fmt.Errorf("array %d is %s and not %s", i+1, number, want)
		}
		names[i] = strings.TrimSpace(names[i]) + " " + typ
	}
	return names, nil
}

func uuids[T any](name string, of func(T) uuid.UUID) arrayColumn[T] {
	return arrayColumn[T]{name: name, typ: "uuid[]", array: func(items []T) any {
		return uuidArray(len(items), func(i int) uuid.UUID { return of(items[i]) })
	}}
}

// texts, bools and the integers are written as the text of an array, as uuids are: pgx allocates for each element of a
// slice.
func texts[T any](name string, of func(T) string) arrayColumn[T] {
	return textOf(name, "text[]", 16, func(b []byte, item T) []byte { return appendText(b, of(item)) })
}

func bools[T any](name string, of func(T) bool) arrayColumn[T] {
	return textOf(name, "bool[]", 6, func(b []byte, item T) []byte { return strconv.AppendBool(b, of(item)) })
}

func bigints[T any](name string, of func(T) int64) arrayColumn[T] {
	return textOf(name, "bigint[]", 8, func(b []byte, item T) []byte { return strconv.AppendInt(b, of(item), 10) })
}

func smallints[T any](name string, of func(T) int16) arrayColumn[T] {
	return textOf(name, "smallint[]", 4, func(b []byte, item T) []byte {
		return strconv.AppendInt(b, int64(of(item)), 10)
	})
}

func ints[T any](name string, of func(T) int) arrayColumn[T] {
	return textOf(name, "int[]", 4, func(b []byte, item T) []byte { return strconv.AppendInt(b, int64(of(item)), 10) })
}

// byteas is a column whose nil elements are NULL. If all are, the array has none: unnest fills it up.
func byteas[T any](name string, of func(T) []byte) arrayColumn[T] {
	return arrayColumn[T]{name: name, typ: "bytea[]", array: func(items []T) any {
		values, given := make([][]byte, len(items)), false
		for i, item := range items {
			values[i] = of(item)
			given = given || values[i] != nil
		}
		if !given {
			return values[:0]
		}
		return values
	}}
}

// shared makes a column of one that most often has the same value for all items. Then its array has one element, which
// costs the server much less to read. The statement takes the first element where unnest has filled up with NULL.
func shared[T any, V comparable](column func(name string, of func(T) V) arrayColumn[T], name string,
	of func(T) V,
) arrayColumn[T] {
	c := column(name, of)
	c.same = func(items []T) bool {
		first := of(items[0])
		return !slices.ContainsFunc(items[1:], func(item T) bool { return of(item) != first })
	}
	return c
}

// textOf is a column whose array is sent as text. size is the room for one element.
func textOf[T any](name, typ string, size int, element func([]byte, T) []byte) arrayColumn[T] {
	return arrayColumn[T]{name: name, typ: typ, array: func(items []T) any {
		text := append(make([]byte, 0, 2+size*len(items)), '{')
		for i, item := range items {
			if i > 0 {
				text = append(text, ',')
			}
			text = element(text, item)
		}
		return string(append(text, '}'))
	}}
}

// appendText appends an element of a text[] in quotes.
func appendText(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			b = append(b, '\\')
		}
		b = append(b, s[i])
	}
	return append(b, '"')
}

// array returns ids as the text of a uuid[]: pgx sends a string as it is, in every exec mode. It would try to encode a
// slice of strings in binary first, and fail with an error that quotes all of it.
func array(ids []uuid.UUID) string {
	return uuidArray(len(ids), func(i int) uuid.UUID { return ids[i] })
}

// uuidArray is array for n IDs, of which id returns the i-th.
func uuidArray(n int, id func(i int) uuid.UUID) string {
	var text strings.Builder
	text.Grow(2 + 33*n)
	text.WriteByte('{')
	var digits [32]byte
	for i := range n {
		if i > 0 {
			text.WriteByte(',')
		}
		u := id(i)
		hex.Encode(digits[:], u[:])
		text.Write(digits[:])
	}
	text.WriteByte('}')
	return text.String()
}

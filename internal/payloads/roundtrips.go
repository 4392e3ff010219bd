package payloads

import (
	"encoding"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
)

// known has for each type whether roundTrips holds: reflect.Type → bool.
var known sync.Map

// roundTrips reports whether every value of t that encodes as JSON decodes into t again. Then there is nothing to
// check, which for a large value takes as long as to decode it. It is false for types with methods of their own, for
// interfaces, whose content may be anything, for types that contain themselves, whose values may be nested too deeply,
// and for what is rare.
func roundTrips(t reflect.Type) bool {
	if yes, ok := known.Load(t); ok {
		return yes.(bool)
	}
	yes := decodesItself(t, nil)
	known.Store(t, yes)
	return yes
}

// decodesItself is roundTrips for a part of the types in around.
func decodesItself(t reflect.Type, around []reflect.Type) bool {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return true
	case slices.Contains(around, t), t.Kind() != reflect.Pointer && hasMethods(t): // those of *T are those of T, too
		return false
	}
	around = append(around, t)
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return decodesItself(t.Elem(), around)
	case reflect.Map:
		k := t.Key()
		named := k.Kind() == reflect.String || k.Kind() >= reflect.Int && k.Kind() <= reflect.Uintptr
		return named && !hasMethods(k) && decodesItself(t.Elem(), around)
	case reflect.Struct:
		for i := range t.NumField() {
			if f := t.Field(i); !fieldDecodesItself(&f, around) {
				return false
			}
		}
		return true
	}
	return t.Kind() == reflect.String || t.Kind() >= reflect.Bool && t.Kind() <= reflect.Float64
}

// fieldDecodesItself is decodesItself for a field of a struct.
func fieldDecodesItself(f *reflect.StructField, around []reflect.Type) bool {
	_, options, _ := strings.Cut(f.Tag.Get("json"), ",")
	switch {
	case strings.Contains(options, "string"):
		return false
	case f.Anonymous && f.Type.Kind() != reflect.Struct: // an unexported type behind a pointer cannot be set
		return false
	case !f.Anonymous && !f.IsExported(), f.Tag.Get("json") == "-":
		return true
	}
	return decodesItself(f.Type, around)
}

// hasMethods reports whether t has methods that say how its values are encoded or decoded.
func hasMethods(t reflect.Type) bool {
	for _, own := range []reflect.Type{
		reflect.TypeFor[json.Marshaler](), reflect.TypeFor[json.Unmarshaler](),
		reflect.TypeFor[encoding.TextMarshaler](), reflect.TypeFor[encoding.TextUnmarshaler](),
	} {
		if reflect.PointerTo(t).Implements(own) {
			return true
		}
	}
	_, encodes := reflect.PointerTo(t).MethodByName("MarshalJSONTo") // of encoding/json/v2
	_, decodes := reflect.PointerTo(t).MethodByName("UnmarshalJSONFrom")
	return encodes || decodes
}

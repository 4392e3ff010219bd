package details_test

import (
	"errors"
	"testing"

	"github.com/kagzi/kagzi/internal/details"
)

type panics struct{}

func (panics) MarshalJSON() ([]byte, error) { panic("no") }

func (*panics) UnmarshalJSON([]byte) error { panic("no") }

// A panic in a method of a user's value is an error.
func TestDetailsThatPanic(t *testing.T) {
	t.Parallel()
	var out any
	if err := details.With(errors.New("x"), panics{}).Into(&out); err == nil {
		t.Error("a value that panics was encoded")
	}
	if err := details.With(errors.New("x"), 1).Into(&panics{}); err == nil {
		t.Error("a value that panics was decoded")
	}
	encode := func(any) ([]byte, error) { panic("no") }
	if stored, err := details.With(errors.New("x"), 1).Stored(nil, encode); err == nil {
		t.Errorf("a codec that panics has encoded %q", stored)
	}
}

package kagziotel

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// textOf returns err's text in valid UTF-8, not too long. Methods of the application's errors may panic.
func textOf(err error) (text string) {
	defer func() {
		if v := recover(); v != nil {
			text = fmt.Sprintf("an error of type %T, whose Error panics", err)
		}
	}()
	text = strings.ToValidUTF8(err.Error(), "\uFFFD")
	if len(text) > mostText {
		text = strings.ToValidUTF8(text[:mostText], "") + "…"
	}
	return text
}

// wrappers are types of errors that say nothing of what they wrap: those of fmt.Errorf, and of Kagzi's kinds and
// ErrRetried.
var wrappers = []string{"*fmt.wrapError", "*failure.Error", "*engine.retriedError"}

// typeOf returns the type of err, without the wrappers that say nothing of it.
func typeOf(err error) string {
	for {
		switch e := err.(type) {
		case interface{ Unwrap() error }:
			inner := e.Unwrap()
			if inner == nil {
				return fmt.Sprintf("%T", err)
			}
			if name := fmt.Sprintf("%T", err); !slices.Contains(wrappers, name) {
				return name
			}
			err = inner
		default:
			return fmt.Sprintf("%T", err)
		}
	}
}

// stackOf returns the stack of a panic, empty if err is none.
func stackOf(err error) (stack string) {
	defer func() { _ = recover() }() // a method of the application's error
	var e interface {
		error
		Stack() []byte
	}
	if errors.As(err, &e) {
		stack = strings.ToValidUTF8(string(e.Stack()), "\uFFFD")
	}
	return stack
}

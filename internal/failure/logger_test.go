package failure_test

import (
	"context"
	"log/slog"
	"slices"
	"testing"

	"github.com/kagzi/kagzi/internal/failure"
)

// A panicking is a slog.Handler of which one method panics.
type panicking struct{ in string }

func (p panicking) do(method string) {
	if p.in == method {
		panic("in " + method)
	}
}

func (p panicking) Enabled(context.Context, slog.Level) bool {
	p.do("Enabled")
	return true
}

func (p panicking) Handle(_ context.Context, r slog.Record) error {
	p.do("Handle")
	lines <- r.Message
	return nil
}

func (p panicking) WithAttrs([]slog.Attr) slog.Handler {
	p.do("WithAttrs")
	return p
}

func (p panicking) WithGroup(string) slog.Handler {
	p.do("WithGroup")
	return p
}

var lines = make(chan string, 100)

func TestSafeLogger(t *testing.T) {
	for _, method := range []string{"Enabled", "Handle", "WithAttrs", "WithGroup"} {
		log := failure.SafeLogger(slog.New(panicking{method}))
		failure.SafeLogger(log).With("a", 1).WithGroup("g").With("b", 2).Error("of " + method)
	}
	var got []string
	for len(lines) > 0 {
		got = append(got, <-lines)
	}
	if want := []string{"of Enabled", "of WithAttrs", "of WithGroup"}; !slices.Equal(got, want) {
		t.Errorf("logged %q, want %q", got, want)
	}
}

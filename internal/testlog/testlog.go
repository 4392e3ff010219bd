// Package testlog has loggers for tests: one whose lines a test can read, and one whose lines appear if the test fails.
package testlog

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kagzi/kagzi/internal/await"
)

// A Buffer keeps log lines. The zero value is empty and ready for use. A Buffer is safe for concurrent use.
type Buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Logger returns a logger that writes to b.
func (b *Buffer) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

// Write appends what a logger writes.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// String returns all lines.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// Has reports whether part was logged.
func (b *Buffer) Has(part string) bool { return strings.Contains(b.String(), part) }

// WantLine waits until a line contains all of the parts, and fails the test if none is logged in time.
func (b *Buffer) WantLine(t testing.TB, parts ...string) {
	t.Helper()
	await.True(t, strings.Join(parts, " … ")+" is logged", func() bool {
		for line := range strings.Lines(b.String()) {
			if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) }) {
				return true
			}
		}
		return false
	})
}

// New returns a logger whose lines are shown if the test fails.
func New(t testing.TB) *slog.Logger {
	logged := &Buffer{}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log of the test:\n%s", logged)
		}
	})
	return logged.Logger()
}

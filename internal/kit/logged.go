package kit

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
)

// A LogBuffer keeps what is logged.
type LogBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write appends what a logger writes.
func (l *LogBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// String returns all that was logged.
func (l *LogBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// Has reports whether part was logged.
func (l *LogBuffer) Has(part string) bool { return strings.Contains(l.String(), part) }

// WantLine fails the test unless a line is logged, soon, that has all of the parts.
func (l *LogBuffer) WantLine(t *testing.T, parts ...string) {
	t.Helper()
	WaitFor(t, strings.Join(parts, " … ")+" is logged", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		for line := range strings.Lines(l.buf.String()) {
			if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) }) {
				return true
			}
		}
		return false
	})
}

// LoggedClient is a client that logs to what is returned.
func LoggedClient(t *testing.T, pool *pgxpool.Pool) (*kagzi.Client, *LogBuffer) {
	t.Helper()
	logged := &LogBuffer{}
	return NewClientWith(t, pool, kagzi.ClientConfig{Logger: slog.New(slog.NewTextHandler(logged, nil))}), logged
}

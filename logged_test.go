package kagzi

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// A logBuffer keeps what is logged.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *logBuffer) has(part string) bool { return strings.Contains(l.String(), part) }

// wantLine fails the test unless a line is logged, soon, that has all of the parts.
func (l *logBuffer) wantLine(t *testing.T, parts ...string) {
	t.Helper()
	waitFor(t, strings.Join(parts, " … ")+" is logged", func() bool {
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

// loggedClient is a client that logs to what is returned.
func loggedClient(t *testing.T, pool *pgxpool.Pool) (*Client, *logBuffer) {
	t.Helper()
	logged := &logBuffer{}
	return clientWith(t, pool, ClientConfig{Logger: slog.New(slog.NewTextHandler(logged, nil))}), logged
}

package engine

import (
	"context"

	"github.com/kagzi/kagzi/store"
)

// NoteTimeout is how long a worker waits for the database to note that it drains, or has stopped.
const NoteTimeout = noteTimeout

// MistakenHeartbeat registers the worker of s, which does not run, lets it take another backend for its connection's, and sends a
// heartbeat. It reports whether the connection is still evidence that the worker lives. end is what the worker stops with.
func MistakenHeartbeat(ctx context.Context, s *Session) (evidence bool, end func(), err error) {
	h := newHeartbeater(s)
	if err := h.begin(ctx); err != nil {
		return false, func() {}, err
	}
	h.backend.PID++
	err = h.heartbeat()
	return h.backend != store.Backend{}, h.end, err
}

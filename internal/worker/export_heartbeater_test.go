package worker

import (
	"context"

	"github.com/kagzi/kagzi/store"
)

// RegistryTimeout is how long a worker waits for the database to note that it drains, or has stopped.
const RegistryTimeout = registryTimeout

// MistakenHeartbeat registers the worker of s, which does not run, makes it believe that its connection has another
// backend, and sends a heartbeat. evidence reports whether the connection is still evidence that the worker lives. The
// caller ends the worker with end.
func MistakenHeartbeat(ctx context.Context, s *Session) (evidence bool, end func(), err error) {
	h := newHeartbeater(s)
	if err := h.begin(ctx); err != nil {
		return false, func() {}, err
	}
	h.backend.PID++
	err = h.heartbeat()
	return h.backend != store.Backend{}, h.end, err
}

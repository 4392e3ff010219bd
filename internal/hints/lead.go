package hints

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/notify"
)

// A Lead is what a coordinator says about once a second while it does the housekeeping of its namespace, so that the
// other coordinators and the workers need not make the same queries. A process that hears none for a while makes them.
type Lead struct {
	Namespace string    `json:"namespace"`
	ID        uuid.UUID `json:"id"`             // of the coordinator: a UUIDv7, made when it began to run
	Ends      bool      `json:"ends,omitempty"` // the coordinator stops, and another shall do its work

	Schema int64 `json:"schema"` // the newest migration that its program knows: a newer program may do more

	// How often it checks, and how soon it declares a worker dead.
	Interval   time.Duration `json:"interval"`
	StaleAfter time.Duration `json:"stale_after"`
	Grace      time.Duration `json:"grace"`

	// Retention identifies the rules by which the coordinator deletes runs. Empty means that its deletion is late or
	// fails.
	Retention string `json:"retention,omitempty"`

	// Busy are the queues of live workers that have runs which are due, or soon will be. The others have none.
	Busy   []string `json:"busy,omitempty"`
	Queues bool     `json:"queues,omitempty"` // Busy is known
}

// maxLead is how many bytes a notification about a Lead may have: Postgres refuses 8,000.
const maxLead = 7000

// Lead sends l to the coordinators and workers of all processes. It leaves out the queues if their names are too long.
func (h *Hints) Lead(ctx context.Context, l Lead) error {
	l.Namespace = h.store.Namespace()
	payload, err := json.Marshal(l)
	if err == nil && len(payload) > maxLead {
		l.Busy, l.Queues = nil, false
		payload, err = json.Marshal(l)
	}
	if err != nil {
		return err
	}
	if err := h.publisher.Send(ctx, notify.LeadChannel, string(payload)); err != nil {
		return fmt.Errorf("tell the others who leads: %w", err)
	}
	return nil
}

// OnLead subscribes hear to what the namespace's coordinators say, this process's own included, until cancel is called.
// hear must not block. The caller must have called Listen.
func (h *Hints) OnLead(hear func(Lead)) (cancel func()) {
	h.listener.mu.Lock()
	defer h.listener.mu.Unlock()
	return h.listener.line.OnLead(func(payload string) {
		var l Lead
		if json.Unmarshal([]byte(payload), &l) == nil && l.Namespace == h.store.Namespace() {
			hear(l)
		}
	})
}

package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/kagzi/kagzi/internal/hints"
)

// A worker does not poll while it hears that its queue is idle, and polls PollInterval after it last heard so.
func TestLeaderPollsForTheWorker(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		interval time.Duration
		lead     hints.Lead
		left     time.Duration
	}{
		"Idle":            {5 * time.Second, hints.Lead{Queues: true, Busy: []string{"other"}}, 5 * time.Second},
		"Busy":            {5 * time.Second, hints.Lead{Queues: true, Busy: []string{"other", "queue"}}, 0},
		"QueuesUnknown":   {5 * time.Second, hints.Lead{}, 0},
		"TooLongInterval": {time.Minute, hints.Lead{Queues: true}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &Session{cfg: Config{Queue: "queue", PollInterval: tt.interval}}
				s.hearLead(tt.lead)
				if got := s.polled(); got != tt.left {
					t.Errorf("the poll is put off by %v, want %v", got, tt.left)
				}
				time.Sleep(tt.left)
				if got := s.polled(); got != 0 {
					t.Errorf("the worker has heard nothing since, and does not poll for %v", got)
				}
			})
		})
	}
}

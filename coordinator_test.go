package kagzi

import (
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi/internal/dbtest"
)

// clientOf returns a client of a database of the test's own.
func clientOf(t *testing.T) *Client {
	t.Helper()
	c, err := NewClient(dbtest.Pool(t), ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A coordinator keeps a copy of Keep: the caller's map may change.
func TestKeepIsCopied(t *testing.T) {
	t.Parallel()
	keep := map[string]time.Duration{"brief": time.Hour}
	k, err := NewCoordinator(clientOf(t), CoordinatorConfig{Keep: keep})
	if err != nil {
		t.Fatal(err)
	}
	keep["a"] = time.Hour
	if got := k.cfg.housekeeping(k.client, k.outage).Keep.Runs.Workflows; len(got) != 1 || got["brief"] != time.Hour {
		t.Errorf("kept: %v", got)
	}
}

func TestRetentionIsValidated(t *testing.T) {
	t.Parallel()
	c := clientOf(t)
	for want, cfg := range map[string]CoordinatorConfig{
		"KeepCompleted is 30ns: give at least 1s (a time.Duration counts nanoseconds": {KeepCompleted: 30},
		"KeepFailed is -1s":                                    {KeepFailed: -time.Second},
		"KeepEvents is 7ns: give at least 1m":                  {KeepEvents: 7},
		"KeepPendingEvents is 1h0m0s, and KeepEvents 168h0m0s": {KeepPendingEvents: time.Hour},
		`Keep of workflow "checkout" is 0s: give at least 1s`:  {Keep: map[string]time.Duration{"checkout": 0}},
		"workflow in Keep is empty":                            {Keep: map[string]time.Duration{"": time.Hour}},
		"contains the control character":                       {Keep: map[string]time.Duration{"a\nb": time.Hour}},
	} {
		if _, err := NewCoordinator(c, cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
		if _, err := NewWorker(c, WorkerConfig{Coordinator: cfg}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v of a worker, want %s", err, want)
		}
	}
}

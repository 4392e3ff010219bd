package admin

import (
	"reflect"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/store/inspect"
)

// What distinguishes one failure from another of the same cause is left out of its text.
func TestCauseOfAnError(t *testing.T) {
	for said, want := range map[string][2]string{
		"":                    {"", ""},
		"kagzi: no room":      {"", "no room"},
		"panic: 7\ngoroutine": {"", "panic: #"},
		`kagzi: step "charge": card 4711 was declined (card_declined, 3 attempts)`: {
			"charge", "card # was declined",
		},
		`ship order 7: kagzi: step "book \"x\"/2": no answer: timeout (timeout, 1 attempt)`: {
			`book "x"/2`, "ship order #: no answer",
		},
		"run 01987654-0000-7000-8000-00000000abcd of 3a7bd3e2360a3d29 at 0xc000123456 took 1.5s": {
			"", "run # of # at # took #s",
		},
		"dial tcp 10.0.0.7:5432: refused": {"", "dial tcp #: refused"},
		`step "unfinished`:                {"", `step "unfinished`},
	} {
		if step, text := causeOf(said); [2]string{step, text} != want {
			t.Errorf("%q: step %q, text %q, not %q", said, step, text, want)
		}
	}
}

// The newest failure of a group says its time, its run and its error, and the trend when there were how many.
func TestGroupsOfFailures(t *testing.T) {
	now := time.Date(2026, 11, 29, 20, 0, 0, 0, time.UTC)
	newest := uuid.New()
	failed := func(id uuid.UUID, kind, text string, ago time.Duration, more bool) inspect.FailedRun {
		return inspect.FailedRun{
			RunID: id, Type: "order", Kind: kind, Error: text, EndedAt: now.Add(-ago), Ago: ago, More: more,
		}
	}
	got := failureGroups([]inspect.FailedRun{
		failed(newest, "network", "no answer from 7", -time.Millisecond, false), // the clock was set
		failed(uuid.New(), "timeout", "no answer from 8", time.Hour, false),
		failed(uuid.New(), "network", "no answer from 9: network", 90*time.Minute, false),
		failed(uuid.New(), "network", "refused", 24*time.Hour, true),
	}, 24*time.Hour)
	if len(got) != 3 {
		t.Fatalf("there are %d groups: %+v", len(got), got)
	}
	want := FailureGroup{
		Workflow: "order", Kind: "network", Text: "no answer from #", Runs: 2, More: true,
		First: now.Add(-90 * time.Minute), Last: now.Add(time.Millisecond), Error: "no answer from 7",
	}
	want.Newest = got[0].Newest
	want.Trend = make([]int, 24)
	want.Trend[22], want.Trend[23] = 1, 1
	if !reflect.DeepEqual(got[0], want) || string(want.Newest) != newest.String() {
		t.Errorf("the first group is %+v, not %+v", got[0], want)
	}
	if got[1].More || got[1].Trend[22] != 1 || !got[2].More || got[2].Trend[0] != 1 {
		t.Errorf("the other groups are %+v", got[1:])
	}
}

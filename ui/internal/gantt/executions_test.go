package gantt

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
)

func TestExecutions(t *testing.T) {
	epoch := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(s int) time.Time {
		if s < 0 {
			return time.Time{}
		}
		return epoch.Add(time.Duration(s) * time.Second)
	}
	record := func(worker, typ string, status kagzi.Status, from, to int) kagzi.StepAttempt {
		return kagzi.StepAttempt{Worker: worker, Type: typ, Status: status, StartedAt: at(from), EndedAt: at(to)}
	}
	step := func(worker string, from, to int) kagzi.StepAttempt {
		return record(worker, "FUNCTION", kagzi.StatusCompleted, from, to)
	}
	nap := record("a", "SLEEP", kagzi.StatusRunning, 5, -1)
	nap.WakeAt = at(60)
	for name, c := range map[string]struct {
		worker   string
		attempts []kagzi.StepAttempt
		want     string
	}{
		"nothing":           {"", nil, ""},
		"one worker":        {"", []kagzi.StepAttempt{step("a", 0, 2), step("a", 2, 5)}, "a 0-5 in 1"},
		"overlapping steps": {"", []kagzi.StepAttempt{step("a", 3, 4), step("a", 1, 9)}, "a 1-9 in 1"},
		"a takeover": {
			"",
			[]kagzi.StepAttempt{step("a", 0, 2), step("b", 4, 5)},
			"a 0-2 in 1, b 4-5 in 1",
		},
		"back again": {"", []kagzi.StepAttempt{
			step("a", 0, 2), step("b", 4, 5),
			step("a", 7, 8),
		}, "a 0-2 in 1, b 4-5 in 1, a 7-8 in 1"},
		"begun by the one before": {
			"",
			[]kagzi.StepAttempt{step("a", 0, 3), step("b", 1, 9)},
			"a 0-3 in 1, b 3-9 in 1",
		},
		"a sleep ended by another": {"", []kagzi.StepAttempt{
			step("a", 0, 2),
			record("b", "SLEEP", kagzi.StatusCompleted, 2, 50), step("b", 50, 51),
		}, "a 0-2 in 1, b 50-51 in 1"},
		"a message that came before": {"", []kagzi.StepAttempt{
			step("a", 2, 3),
			record("b", "SIGNAL", kagzi.StatusCompleted, 9, 1),
		}, "a 2-3 in 1, b 9-9 in 1"},
		"the current one": {"a", []kagzi.StepAttempt{step("a", 0, 2)}, "a 0-100 in 1 now"},
		"another current one": {
			"b",
			[]kagzi.StepAttempt{step("a", 0, 2)},
			"a 0-2 in 1, b 2-100 in 0 now",
		},
		"the current one after a sleep": {
			"b",
			[]kagzi.StepAttempt{step("a", 0, 5), nap},
			"a 0-5 in 1, b 60-100 in 0 now",
		},
		"only the row": {"b", nil, "b 1-100 in 0 now"},
		"a step under way": {"b", []kagzi.StepAttempt{
			step("a", 0, 2),
			record("b", "FUNCTION", kagzi.StatusRunning, 1, -1),
		}, "a 0-2 in 1, b 2-100 in 1 now"},
		"a step that waits for its attempt": {"", []kagzi.StepAttempt{
			step("a", 0, 2),
			record("b", "FUNCTION", kagzi.StatusPending, 5, -1),
		}, "a 0-2 in 1, b 5-5 in 1"},
		"cancelled long after": {"", []kagzi.StepAttempt{
			step("a", 0, 2),
			record("a", "SLEEP", kagzi.StatusCancelled, 2, 90), step("b", 4, 5),
		}, "a 0-2 in 1, b 4-5 in 1"},
		"a child that ended without it": {"", []kagzi.StepAttempt{
			step("a", 0, 2),
			record("a", "CHILD_WORKFLOW", kagzi.StatusCompleted, 2, 90), step("b", 4, 5),
		}, "a 0-2 in 1, b 4-5 in 1"},
		"nothing but a child": {
			"",
			[]kagzi.StepAttempt{record("a", "CHILD_WORKFLOW", kagzi.StatusCompleted, 2, 90)},
			"a 90-90 in 1",
		},
		"records of a fork's origin": {"", []kagzi.StepAttempt{step("z", -1, -1), {
			Worker: "y", Type: "FUNCTION",
			StartedAt: at(0).Add(-time.Hour), EndedAt: at(0).Add(-time.Minute),
		}, step("b", 4, 5)}, "b 4-5 in 1"},
		"work with gaps": {"", []kagzi.StepAttempt{
			step("a", 0, 1), record("a", "SLEEP", kagzi.StatusRunning, 1, -1),
			step("a", 50, 51),
		}, "a 0-51 in 2"},
	} {
		run := kagzi.RunInfo{CreatedAt: at(0), StartedAt: at(1), Worker: c.worker}
		var got []string
		for _, e := range Executions(run, c.attempts, at(100)) {
			text := fmt.Sprintf("%s %.0f-%.0f in %d", e.Worker, e.From.Sub(epoch).Seconds(), e.To.Sub(epoch).Seconds(),
				len(e.Work))
			if e.Current {
				text += " now"
			}
			got = append(got, text)
		}
		if got := strings.Join(got, ", "); got != c.want {
			t.Errorf("%s: %q, not %q", name, got, c.want)
		}
	}
}

package replay_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/replay"
	"github.com/kagzi/kagzi/store"
)

// TestPresent covers what tests through the API cannot make without a crash, or only in much time.
func TestPresent(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return time.Date(2026, 1, 1, 0, 0, s, 0, time.UTC) }
	row := func(id, kind, status string, then func(*store.StepRow)) *store.StepRow {
		r := &store.StepRow{StepID: id, Kind: kind, Status: status, Attempt: 1, RunAttempt: 1}
		if status != store.Running {
			r.FinishedAt = at(9)
		}
		if then != nil {
			then(r)
		}
		return r
	}
	decided := func(s int, output string) func(*store.StepRow) {
		return func(r *store.StepRow) { r.Output, r.FinishedAt = []byte(output), at(s) }
	}
	ofChild := func(output string) func(*store.StepRow) {
		return func(r *store.StepRow) { r.ChildRunID, r.Output, r.FinishedAt = uuid.New(), []byte(output), at(6) }
	}
	attempt := func(n int) func(*store.StepRow) { return func(r *store.StepRow) { r.Attempt = n } }
	active := func(status string) *store.Run { return &store.Run{Status: status} }
	const step, comp = store.KindFunction, store.KindCompensation
	for name, tt := range map[string]struct {
		run  *store.Run
		row  *store.StepRow // the one that is looked at
		more []*store.StepRow
		want string
		end  time.Time
	}{
		"step of a run that executes": {
			run: active(store.Running), row: row("s", step, store.Running, nil),
			want: store.Running,
		},
		"step of a run that drained": {
			run: active(store.Pending), row: row("s", step, store.Running, nil),
			want: store.Pending,
		},
		"sleep of a run that drained": {run: active(store.Pending), row: row("s", store.KindSleep, store.Running,
			nil), want: store.Running},
		"step of a run that is over": {
			run: &store.Run{Status: store.Failed, FinishedAt: at(5)},
			row: row("s", step, store.Running, nil), want: store.Cancelled, end: at(5),
		},
		"step of a run that undoes": {
			run: &store.Run{Status: store.Sleeping, Outcome: &store.FinalOutcome{}},
			row: row("s", step, store.Running, nil), want: store.Cancelled,
		},
		"step of a failed branch of Go": {
			run: active(store.Running), row: row("go/a/b", step, store.Running, nil),
			more: []*store.StepRow{row("go", store.KindBranch, store.Failed, nil)}, want: store.Cancelled, end: at(9),
		},
		"step in two groups": {
			run: active(store.Running), row: row("r/0/q/1/s", step, store.Running, nil), want: store.Cancelled,
			end: at(3),
			more: []*store.StepRow{
				row("r/0/q", store.KindMarker, store.Completed, decided(4, `{"winner":"0"}`)),
				row("r", store.KindMarker, store.Completed, decided(3, `{"timedOut":true}`)),
			},
		},
		"step of a winner": {
			run: active(store.Running), row: row("r/0/s", step, store.Running, nil), want: store.Running,
			more: []*store.StepRow{row("r", store.KindMarker, store.Completed, decided(3, `{"winner":"0"}`))},
		},
		"step of a group that all its branches ended": {
			run: active(store.Running), row: row("m/0/s", step, store.Running, nil), want: store.Running,
			more: []*store.StepRow{row("m", store.KindMarker, store.Completed, decided(3, `{"items":["x"]}`))},
		},
		"step of a group that failed": {
			run: active(store.Running), row: row("p/b/s", step, store.Running, nil), want: store.Cancelled, end: at(3),
			more: []*store.StepRow{row("p", store.KindMarker, store.Failed, decided(3, `{"failed":"a"}`))},
		},
		"step of a group whose failure was forgotten": {
			run: active(store.Running), row: row("p/b/s", step, store.Running, nil), want: store.Running,
			more: []*store.StepRow{row("p", store.KindMarker, store.Failed, func(r *store.StepRow) {
				r.Output, r.ForgottenBy = []byte(`{"failed":"a"}`), 1
			})},
		},
		"step of a group that is tried again": {
			run: active(store.Running), row: row("p/b/s", step, store.Running, nil), want: store.Running,
			more: []*store.StepRow{
				row("p", store.KindMarker, store.Failed, decided(3, `{"failed":"a"}`)),
				row("p", store.KindMarker, store.Running, attempt(2)),
			},
		},
		"beside an answer of Patched": {
			run: active(store.Running), row: row("#patched:x/s", step, store.Running, nil), want: store.Running,
			more: []*store.StepRow{row("#patched:x", store.KindMarker, store.Completed, decided(3, `true`))},
		},
		"child that was deleted": {
			run: active(store.Running), row: row("c", store.KindChild, store.Running, nil),
			want: store.Running,
		},
		"child that is under way": {
			run: &store.Run{Status: store.Failed, FinishedAt: at(5)},
			row: row("c", store.KindChild, store.Running, func(r *store.StepRow) {
				r.Child = &store.ChildRun{Status: store.Sleeping}
			}), want: store.Running,
		},
		"child that has ended": {
			run: active(store.Running), row: row("c", store.KindChild, store.Running,
				func(r *store.StepRow) { r.Child = &store.ChildRun{Status: store.Completed, FinishedAt: at(7)} }),
			want: store.Completed, end: at(7),
		},
		"child that was cancelled": {run: active(store.Running), row: row("c", store.KindChild, store.Failed,
			ofChild(`"CANCELLED"`)), want: store.Cancelled, end: at(6)},
		"child that failed": {run: active(store.Running), row: row("c", store.KindChild, store.Failed,
			ofChild(`"FAILED"`)), want: store.Failed, end: at(6)},
		"registration": {
			run: active(store.Running), row: row("c", comp, store.Running, nil),
			want: store.Pending,
		},
		"replaced registration": {
			run: active(store.Running), row: row("c", comp, store.Running, nil),
			more: []*store.StepRow{row("c", comp, store.Running, attempt(2))}, want: store.Cancelled,
		},
		"newest registration": {
			run: active(store.Running), row: row("c", comp, store.Running, attempt(2)),
			more: []*store.StepRow{row("c", comp, store.Running, nil)}, want: store.Pending,
		},
		"registration of a source": {
			run: active(store.Running),
			row: row("c", comp, store.Running, func(r *store.StepRow) { r.RunAttempt = 0 }), want: store.Cancelled,
		},
		"compensation that runs": {
			run:  &store.Run{Status: store.Sleeping, Outcome: &store.FinalOutcome{}},
			row:  row("c", comp, store.Running, func(r *store.StepRow) { r.ChildRunID = uuid.New() }),
			want: store.Running,
		},
		"compensation to come": {
			run: &store.Run{Status: store.Sleeping, Outcome: &store.FinalOutcome{}},
			row: row("c", comp, store.Running, nil), want: store.Pending,
		},
		"compensation that has run": {
			run: &store.Run{Status: store.Failed, FinishedAt: at(5)},
			row: row("c", comp, store.Completed, nil), want: store.Completed, end: at(9),
		},
	} {
		replay.Present(tt.run, append(tt.more, tt.row), false)
		if tt.row.Status != tt.want || !tt.row.FinishedAt.Equal(tt.end) {
			t.Errorf("%s is %s, ended at %v; want %s, %v", name, tt.row.Status, tt.row.FinishedAt, tt.want, tt.end)
		}
		if tt.row.Kind == store.KindChild && tt.row.Output != nil {
			t.Errorf("%s has the output %s", name, tt.row.Output)
		}
	}
	// No attempt follows a failed one in a run that is over.
	retried := row("s", step, store.Failed, func(r *store.StepRow) { r.WakeAt = at(30) })
	replay.Present(&store.Run{Status: store.Cancelled, FinishedAt: at(10)}, []*store.StepRow{retried}, false)
	if !retried.WakeAt.IsZero() {
		t.Errorf("the next attempt is at %v", retried.WakeAt)
	}
}

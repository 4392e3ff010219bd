package operations

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

// once is the policy of a step that fails at its first failure.
var once = kagzi.RetryPolicy{MaxAttempts: 1}

// at is a workflow that ends, or stops to go on, where its input says.
var at = kagzi.Define[string, string]("at")

func goAt(ctx kagzi.Context, where string) (string, error) {
	fails := func(context.Context) error { return kind.Unavailable }
	switch where {
	case "step", "cancelled":
		if where == "step" {
			return "", kagzi.Do(ctx, "pay", fails, once)
		}
		return "", kagzi.Sleep(ctx, "night", time.Hour)
	case "wrapped":
		return "", fmt.Errorf("the order: %w", kagzi.Do(ctx, "pay", fails, once))
	case "outside", "after":
		if err := kagzi.Do(ctx, "pay", fails, once); err == nil {
			return "", errors.New("did not fail")
		}
		if err := kagzi.Do(ctx, "apologize", func(context.Context) error { return nil }); err != nil {
			return "", err
		}
		if where == "outside" {
			return "", kagzi.Permanent(kind.Unavailable)
		}
		return "", kagzi.Do(ctx, "ship", func(context.Context) error { return kind.NotFound }, once)
	case "branch":
		return "", kagzi.Parallel(ctx, "both", map[string]func(kagzi.Context) error{
			"first":  func(ctx kagzi.Context) error { return kagzi.Do(ctx, "left", fails, once) },
			"second": func(kagzi.Context) error { return nil },
		})
	case "compensated":
		kagzi.Compensate(ctx, "refund", kit.Noop.With(1))
		return "", kagzi.Do(ctx, "book", fails, once)
	case "sleep":
		return "", kagzi.Sleep(ctx, "cooling-off", time.Hour)
	case "branches":
		return "", kagzi.Parallel(ctx, "late", map[string]func(kagzi.Context) error{
			"a": func(ctx kagzi.Context) error { return kagzi.Sleep(ctx, "nap", time.Hour) },
			"b": func(ctx kagzi.Context) error {
				_, err := kagzi.WaitSignal(ctx, kagzi.DefineSignal[string]("either"))
				return err
			},
		})
	case "signal":
		return kagzi.WaitSignal(ctx, kagzi.DefineSignal[string]("approved"))
	case "retry":
		return "", kagzi.Do(ctx, "authorize", fails, kagzi.RetryPolicy{MaxAttempts: 5, Backoff: time.Hour})
	}
	return where, nil
}

// Counts names the step that ended a failed run, and the one that an active run waits for. Filters by kind and wait
// choose the same runs.
func TestCountsByStep(t *testing.T) {
	k := kit.New(t)
	kit.Serve(k, at, goAt)
	kit.Serve(k, kit.Noop, func(_ kagzi.Context, n int) (int, error) { return n, nil })
	ended := map[string]string{
		"step": "pay", "wrapped": "pay", "outside": "", "after": "ship",
		"branch": "both/first/left", "compensated": "book",
	}
	waiting := map[string]string{
		"sleep": "cooling-off", "signal": "approved", "retry": "authorize",
		"branches": "late/a/nap",
	}
	runs := map[string]*kagzi.Run[string]{}
	for _, where := range []string{
		"step", "wrapped", "outside", "after", "branch", "compensated", "sleep", "branches",
		"signal", "retry", "done", "cancelled",
	} {
		runs[where] = kit.Begin(k, at, where, kagzi.Metadata{"where": where})
	}
	for where := range ended {
		kit.FailureOf(k, runs[where], kagzi.StatusFailed)
	}
	for where := range waiting {
		await.True(t, where+" waits", func() bool { return k.InfoOf(runs[where]).WaitingOn != nil })
	}
	k.WaitStatus(runs["cancelled"], kagzi.StatusSleeping)
	k.Cancel(runs["cancelled"])
	k.WaitStatus(runs["done"], kagzi.StatusCompleted)
	k.WaitStatus(runs["cancelled"], kagzi.StatusCancelled)

	for where := range runs {
		want := ended[where] + waiting[where]
		got, err := admin.New(k.Client).Runs.Count(k.Ctx, kagzi.RunFilter{Metadata: kagzi.Metadata{"where": where}},
			admin.ByStep)
		if err != nil || len(got) != 1 || got[0] != (admin.RunCount{Step: want, Runs: 1}) {
			t.Errorf("%s: %+v, %v, want step %q", where, got, err, want)
		}
	}
	for says, tt := range map[string]struct {
		f    kagzi.RunFilter
		want []string
	}{
		"a kind":                 {kagzi.RunFilter{Kind: kind.NotFound}, []string{"after"}},
		"a kind that no run has": {kagzi.RunFilter{Kind: kind.Timeout}, nil},
		"a wait":                 {kagzi.RunFilter{WaitingOn: "signal approved"}, []string{"signal"}},
		"a word":                 {kagzi.RunFilter{WaitingOn: "timer"}, []string{"branches", "sleep"}},
		"no word":                {kagzi.RunFilter{WaitingOn: "time"}, nil},
		"another text":           {kagzi.RunFilter{WaitingOn: "signal appro"}, nil},
		"the second wait":        {kagzi.RunFilter{WaitingOn: "signal either"}, []string{"branches"}},
		"its end":                {kagzi.RunFilter{WaitingOn: "either"}, nil},
		"an end": {kagzi.RunFilter{
			EndedUntil: k.InfoOf(runs["step"]).EndedAt.Add(time.Microsecond),
			EndedSince: k.InfoOf(runs["step"]).EndedAt, Metadata: kagzi.Metadata{"where": "step"},
		}, []string{"step"}},
		"an ID": {
			kagzi.RunFilter{IDs: []kagzi.RunID{runs["sleep"].ID(), kagzi.RunID(uuid.NewString())}},
			[]string{"sleep"},
		}, "an ID of another kind": {kagzi.RunFilter{
			IDs:  []kagzi.RunID{runs["sleep"].ID()},
			Kind: kind.NotFound,
		}, nil},
		"an error": {
			kagzi.RunFilter{ErrorText: strings.ToUpper(k.InfoOf(runs["after"]).Error), Kind: kind.NotFound},
			[]string{"after"},
		}, "no error": {kagzi.RunFilter{ErrorText: "100% sure"}, nil},
		"no end": {kagzi.RunFilter{EndedSince: time.Now().Add(time.Hour)}, nil},
		"before its end": {kagzi.RunFilter{
			EndedUntil: k.InfoOf(runs["step"]).EndedAt,
			Metadata:   kagzi.Metadata{"where": "step"},
		}, nil},
	} {
		list, err := k.Client.List(k.Ctx, tt.f)
		var got []string
		for _, r := range list {
			got = append(got, r.Metadata["where"])
			if r.Input != nil || r.Output != nil {
				t.Errorf("%s: listed with input %q, output %q", says, r.Input, r.Output)
			}
		}
		if err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%s: listed %q, %v, want %q", says, got, err, tt.want)
		}
		counts, err := admin.New(k.Client).Runs.Count(k.Ctx, tt.f)
		if err != nil || len(counts) != 1 || counts[0].Runs != len(tt.want) {
			t.Errorf("%s: counted %+v, %v, want %d", says, counts, err, len(tt.want))
		}
	}
	// A bulk verb takes the same runs.
	for _, tt := range []struct {
		f    kagzi.RunFilter
		want string
	}{{kagzi.RunFilter{WaitingOn: "signal approved"}, "signal"}, {
		kagzi.RunFilter{Workflow: "at", WaitingOn: "retry"},
		"retry",
	}} {
		bulk, err := admin.New(k.Client).Runs.CancelAll(k.Ctx, tt.f, admin.DryRun())
		if err != nil || !slices.Equal(bulk.Changed, []kagzi.RunID{runs[tt.want].ID()}) {
			t.Errorf("%+v would change %v, %v", tt.f, bulk, err)
		}
	}
	bulk, err := admin.New(k.Client).Runs.ResumeAll(k.Ctx, kagzi.RunFilter{Kind: kind.NotFound}, admin.DryRun())
	if err != nil || !slices.Equal(bulk.Changed, []kagzi.RunID{runs["after"].ID()}) {
		t.Errorf("by kind: %+v, %v", bulk, err)
	}
	bulk, err = admin.New(k.Client).Runs.RestartAll(k.Ctx, kagzi.RunFilter{EndedSince: time.Now().Add(time.Hour)},
		admin.DryRun())
	if err != nil || bulk.Matched != 0 {
		t.Errorf("an end in the future: %+v, %v", bulk, err)
	}
}

// Counts groups by all fields together, the largest group first.
func TestCounts(t *testing.T) {
	k := kit.New(t)
	for i, wf := range []string{"a", "a", "a", "b", "b", "c"} {
		kit.Begin(k, kagzi.Define[int, int](wf), 1, kagzi.Queue(fmt.Sprint("q", i%2)))
	}
	k.Cancel(kit.Begin(k, kagzi.Define[int, int]("c"), 1))
	hour := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	k.Exec(`UPDATE kagzi.workflow_runs SET created_at = $1::timestamptz + CASE WHEN workflow_type = 'a'
		THEN interval '59 minutes' ELSE interval '60 minutes' END`, hour)
	k.Exec(`UPDATE kagzi.workflow_runs SET finished_at = $1::timestamptz + interval '25 hours'
		WHERE finished_at IS NOT NULL`, hour)
	pending, cancelled := kagzi.StatusPending, kagzi.StatusCancelled
	for name, tt := range map[string]struct {
		by   []admin.CountBy
		want []admin.RunCount
	}{
		"All": {nil, []admin.RunCount{{Runs: 7}}},
		"Workflows": {[]admin.CountBy{admin.ByWorkflow}, []admin.RunCount{
			{Workflow: "a", Runs: 3},
			{Workflow: "b", Runs: 2},
			{Workflow: "c", Runs: 2},
		}},
		"Statuses": {[]admin.CountBy{admin.ByStatus, admin.ByKind}, []admin.RunCount{
			{Status: pending, Runs: 6},
			{Status: cancelled, Kind: kind.Cancelled, Runs: 1},
		}},
		"Queues": {
			[]admin.CountBy{admin.ByQueue, admin.ByStatus},
			[]admin.RunCount{
				{Queue: "q0", Status: pending, Runs: 3},
				{Queue: "q1", Status: pending, Runs: 3},
				{Queue: "default", Status: cancelled, Runs: 1},
			},
		},
		"Hours": {[]admin.CountBy{admin.ByStarted(time.Hour)}, []admin.RunCount{
			{Started: hour.Add(time.Hour), Runs: 4},
			{Started: hour, Runs: 3},
		}},
		"Days": {
			[]admin.CountBy{admin.ByEnded(24 * time.Hour)},
			[]admin.RunCount{{Runs: 6}, {Ended: hour.Add(14 * time.Hour), Runs: 1}},
		},
	} {
		got, err := admin.New(k.Client).Runs.Count(k.Ctx, kagzi.RunFilter{}, tt.by...)
		if err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, tt.want)
		}
	}
	for says, by := range map[string][]admin.CountBy{
		"a CountBy is nil": {nil}, "by workflow twice": {admin.ByWorkflow, admin.ByStatus, admin.ByWorkflow},
		"by ByEnded twice":                 {admin.ByEnded(time.Hour), admin.ByEnded(time.Minute)},
		`by "version": use admin.ByStatus`: {admin.CountField("version")},
		"the length of ByStarted is 0":     {admin.ByStarted(0)},
		"the length of ByEnded is -1h":     {admin.ByEnded(-time.Hour)},
		"did you mean 5*time.Second":       {admin.ByEnded(5)},
	} {
		_, err := admin.New(k.Client).Runs.Count(k.Ctx, kagzi.RunFilter{}, by...)
		kit.MustContain(t, err, "counts", says)
		if kagzi.KindOf(err) != kind.BadRequest {
			t.Errorf("%v is of kind %s", err, kagzi.KindOf(err))
		}
	}
	for says, f := range map[string]kagzi.RunFilter{
		"leave out After and Limit": {Limit: 1}, "After and Limit": {After: "x"}, "kind": {Kind: "\x00"},
		"WaitingOn":   {WaitingOn: "signal \xff"},
		"EndedSince":  {EndedSince: time.Date(10_000, 1, 2, 0, 0, 0, 0, time.UTC)},
		"EndedUntil":  {EndedUntil: time.Date(10_000, 1, 2, 0, 0, 0, 0, time.UTC)},
		"WaitingOn w": {WaitingOn: strings.Repeat("w", 300)},
		"ErrorText":   {ErrorText: "a\x00b"}, "IDs has 0 run IDs": {IDs: []kagzi.RunID{}},
		"is no run ID": {IDs: []kagzi.RunID{"x"}}, "give 1 to 10000": {IDs: make([]kagzi.RunID, 10_001)},
	} {
		_, err := admin.New(k.Client).Runs.Count(k.Ctx, f)
		kit.MustContain(t, err, "counts", strings.TrimSuffix(says, " w"))
	}
}

// A count of too much says what to do.
func TestCountsOfTooMuch(t *testing.T) {
	k := kit.New(t)
	k.Exec(`INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, status, available_at)
		SELECT gen_random_uuid(), 'default', 'default', 'type-' || g, 'PENDING', 'infinity'
			FROM generate_series(1, 10001) AS g`)
	_, err := admin.New(k.Client).Runs.Count(k.Ctx, kagzi.RunFilter{}, admin.ByWorkflow)
	kit.MustContain(t, err, "more than 10000 groups", "narrow the filter")
	if got, err := admin.New(k.Client).Runs.Count(k.Ctx, kagzi.RunFilter{}, admin.ByStatus); err != nil ||
		got[0].Runs != 10_001 {
		t.Errorf("%+v, %v", got, err)
	}
}

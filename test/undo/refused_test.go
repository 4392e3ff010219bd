package undo_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
)

// refuse lets the server refuse changes of a row of kagzi.workflow_runs so that the condition holds.
func refuse(k *kit.Kit, event, condition string) {
	k.T.Helper()
	k.Exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'poison'; END $$`)
	k.Exec(`CREATE TRIGGER refuse BEFORE ` + event + ` ON kagzi.workflow_runs FOR EACH ROW WHEN (` + condition +
		`) EXECUTE FUNCTION refuse()`)
}

// wantRefused waits until the run says on, and Health names it with that. Then it removes the cause, and lets the run
// be tried again.
func wantRefused(k *kit.Kit, run *kagzi.Run[int], on string) {
	k.T.Helper()
	if !await.BecomesTrue(await.Patience, func() bool { return k.InfoOf(run).WaitingOn.String() == on }) {
		k.T.Fatalf("the run waits on %q, want %q", k.InfoOf(run).WaitingOn, on)
	}
	report, err := admin.New(k.Client).Health(k.Ctx)
	if c := report.Check("compensations"); err != nil || c.Status != health.Degraded ||
		!strings.Contains(c.Detail, string(run.ID())+" (trip, "+on+")") {
		k.T.Errorf("health says %+v, %v", c, err)
	}
	k.Exec(`DROP TRIGGER refuse ON kagzi.workflow_runs`)
	k.Exec(`UPDATE kagzi.workflow_runs SET available_at = now() WHERE run_id = $1`, string(run.ID()))
}

// The server refuses to start a compensation, or to end the run after its compensations. The run and Health say so, the
// run that was cancelled or failed does not go on otherwise, the compensations of others run, and it is compensated
// after the repair.
func TestRefusedCompensation(t *testing.T) {
	t.Parallel()
	const start = "compensation car; its start is refused"
	for name, tt := range map[string]struct {
		event, condition, on string
		then                 func(kagzi.Context) error
		cancel               bool
		ends                 kagzi.Status
	}{
		"StartAfterFailure": {"INSERT", `NEW.input = '"car7"'`, start, kit.Breaks, false, kagzi.StatusFailed},
		"StartAfterCancel":  {"INSERT", `NEW.input = '"car7"'`, start, kit.SleepLong, true, kagzi.StatusCancelled},
		"End": {
			"UPDATE", `NEW.status = 'FAILED' AND NEW.input = '7'`, "its end is refused", kit.Breaks,
			false, kagzi.StatusFailed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			refuse(k, tt.event, tt.condition)
			j, other := &kit.Journal{}, &kit.Journal{}
			w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
			kagzi.Handle(w, kit.Travel, func(ctx kagzi.Context, n int) (int, error) {
				if n == 7 {
					return kit.Trip(j, tt.then)(ctx, n)
				}
				return kit.Trip(other, kit.Breaks)(ctx, n)
			})
			kit.StartWorker(t, w)
			kit.ServeCancellations(k, j, nil)
			run := kit.Begin(k, kit.Travel, 7)
			if tt.cancel {
				kit.CancelAsleep(k, run)
			}
			wantAnother := func() {
				t.Helper()
				another := kit.Begin(k, kit.Travel, 8)
				if _, err := another.Result(k.Ctx); err == nil || errors.Is(err, k.Ctx.Err()) {
					t.Errorf("another run ended with %v", err)
				}
			}
			wantAnother()
			wantRefused(k, run, tt.on)
			if info := kit.EndsAs(k, run, tt.ends); info.WaitingOn != nil {
				t.Errorf("it is over, and waits on %q", info.WaitingOn)
			}
			own := slices.DeleteFunc(strings.Fields(j.String()), func(s string) bool {
				return strings.HasSuffix(s, "8")
			})
			if got := strings.Join(own, " "); got != kit.Compensated {
				t.Errorf("happened: %q", got)
			}
			if s := k.Steps(run.ID())["car#compensation"]; len(s) != 1 || s[0].Error != "" || s[0].Kind != "" {
				t.Errorf("the compensation that was refused is %+v", s)
			}
		})
	}
}

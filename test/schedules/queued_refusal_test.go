package schedules_test

import (
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
)

// The server refuses the release of one schedule's queued run. That schedule is paused with the error, and holds up no
// other: the queued run of the other begins, and its ticks fire. After the repair, the run that was refused begins,
// too.
func TestRefusedReleaseHoldsUpNoOtherSchedule(t *testing.T) {
	k := kit.New(t)
	co := k.Coordinator()
	hourly := kagzi.Schedule{Every: time.Hour, Overlap: kagzi.OverlapQueueOne}
	good, bad := hourly, hourly
	good.Name, bad.Name, bad.Run = "good", "bad", kit.Report.With("", kagzi.Metadata{"m": "poison"})
	both := func(f func(name string)) {
		f("bad")
		f("good")
	}
	k.Schedule(good)
	k.Schedule(bad)
	passes := 0
	fire := func(ticks ...string) {
		t.Helper()
		passes++ // earlier passes were years ago
		k.Exec(`UPDATE kagzi.workflow_runs SET fire_at = fire_at - $1 * interval '1 year'`, 10*passes)
		for _, name := range ticks {
			k.Missed(name, 5*time.Hour)
		}
		k.Pass(co)
	}
	fire("good", "bad")
	fire("good", "bad")
	both(func(name string) {
		if runs := k.Fired(name); len(runs) != 2 || runs[1].WaitingOn.String() != "previous run" {
			t.Fatalf("INVALID: the runs of %s are %+v", name, runs)
		}
	})
	k.Exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'poison'; END $$`)
	k.Exec(`CREATE TRIGGER refuse BEFORE UPDATE ON kagzi.workflow_runs FOR EACH ROW
		WHEN (OLD.waiting_on = '[{"kind": "previous run"}]' AND NEW.waiting_on IS NULL
			AND NEW.metadata::text LIKE '%poison%') EXECUTE FUNCTION refuse()`)
	both(func(name string) { k.Cancel(k.Fired(name)[0].ID) })
	k.Pass(co)
	fire("good")
	if runs := k.Fired("good"); len(runs) != 3 || runs[1].WaitingOn != nil {
		t.Errorf("the runs of the good schedule are %+v, want that the second is due and a third was fired", runs)
	}
	refused := k.Fired("bad")[1]
	if info := k.Info("bad"); !info.Paused || !strings.Contains(info.Error, "poison") ||
		!strings.Contains(info.Error, string(refused.ID)) {
		t.Errorf("the refused schedule is %+v, want that it is paused with the run and the error", info)
	}
	if info := k.Info("good"); info.Paused || info.Error != "" {
		t.Errorf("the good schedule is %+v", info)
	}
	k.Exec(`DROP TRIGGER refuse ON kagzi.workflow_runs`)
	k.Pass(co)
	if run := k.InfoOf(refused.ID); run.WaitingOn != nil {
		t.Errorf("after the repair the refused run waits for %q", run.WaitingOn)
	}
}

//go:build unix

package crash_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/pg"
)

// A knownSchedule is a schedule and, independently of how it is computed, the seconds of its ticks.
type knownSchedule struct {
	kagzi.Schedule
	at   func(second time.Time) bool
	from time.Time // ticks after it count
}

// yearOne is where intervals without a Start are counted from.
var yearOne = time.Time{}.Unix()

// knownSchedules returns n schedules of seconds and minutes.
func knownSchedules(n int) []*knownSchedule {
	out := make([]*knownSchedule, n)
	for i := range out {
		step := 1 + i%7
		s := kagzi.Schedule{Name: fmt.Sprint("s", i), CatchUp: 10_000, Run: kit.Report.With("")}
		var at func(time.Time) bool
		switch i % 4 {
		case 0:
			s.Every = time.Duration(step) * time.Second
			at = func(t time.Time) bool { return (t.Unix()-yearOne)%int64(step) == 0 }
		case 1:
			s.Cron = fmt.Sprintf("*/%d * * * * *", step)
			at = func(t time.Time) bool { return t.Second()%step == 0 }
		case 2:
			s.Cron, s.TimeZone = fmt.Sprintf("%d,%d,59 * * * * *", step, 20+step), "America/New_York"
			at = func(t time.Time) bool { return t.Second() == step || t.Second() == 20+step || t.Second() == 59 }
		default:
			s.Cron, s.Overlap = fmt.Sprintf("%d-59/3 * * * * *", step), ""
			at = func(t time.Time) bool { return t.Second() >= step && (t.Second()-step)%3 == 0 }
		}
		out[i] = &knownSchedule{Schedule: s, at: at}
	}
	return out
}

// Coordinators are killed and frozen for as long as the test takes: no tick is missed, and none fires twice. With
// KAGZI_SOAK=10m it does so for ten minutes, every three seconds.
func TestKilledCoordinators(t *testing.T) {
	length, every := 6*time.Second, 600*time.Millisecond
	if text := os.Getenv("KAGZI_SOAK"); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
		every = 3 * time.Second
	}
	k := kit.New(t)
	ctx := t.Context()
	k.Ctx = ctx // the kit's ends too soon for a soak
	all := knownSchedules(50)
	for _, s := range all {
		k.Schedule(s.Schedule)
		s.from = k.Info(s.Name).Last
	}
	spec := workerSpec{
		DSN: k.Pool.Config().ConnString(), Ledger: filepath.Join(t.TempDir(), "ledger"),
		Coordinate: true,
	}
	spec.Config.Coordinator = kagzi.CoordinatorConfig{Interval: time.Second, Batch: 7}
	processes := []*process{startProcess(t, spec), startProcess(t, spec)}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	faults := 0
	for begun := time.Now(); time.Since(begun) < length; faults++ {
		<-ticker.C
		p := processes[faults%2]
		if faults%3 == 0 { // frozen until its next turn, when it is killed
			if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := p.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		p.killed(t)
		processes[faults%2] = startProcess(t, spec)
	}
	for _, p := range processes {
		_ = p.cmd.Process.Kill()
		p.killed(t)
	}
	until := k.Now()
	co := k.Coordinator()
	await.True(t, "the last coordinator fires what is left", func() bool {
		// the server ended the transaction of a busy test, or the pass its own time: the next pass goes on
		if _, err := k.Fire(co); pg.Classify(err) == pg.ClassAway || errors.Is(err, context.DeadlineExceeded) {
			return false
		} else if err != nil {
			t.Fatal(err)
		}
		return k.Count(`SELECT count(*) FROM kagzi.schedules WHERE NOT paused AND next_at <= $1`, until) == 0
	})
	total := 0
	for _, s := range all {
		total += s.compare(t, k.Fired(s.Name), until)
	}
	t.Logf("%d runs of %d schedules, each tick once, with %d faults", total, len(all), faults)
}

// compare checks that the runs are those of the schedule's ticks up to until, and perhaps of some later, each once.
func (s *knownSchedule) compare(t *testing.T, runs []kagzi.RunInfo, until time.Time) int {
	t.Helper()
	fired := map[time.Time]int{}
	last := until
	for _, r := range runs {
		fired[r.FireTime.UTC()]++
		if r.FireTime.After(last) {
			last = r.FireTime
		}
	}
	for tick := s.from.UTC().Truncate(time.Second).Add(time.Second); !tick.After(last); tick = tick.Add(time.Second) {
		want := 0
		if s.at(tick) {
			want = 1
		}
		if n := fired[tick]; n != want {
			t.Errorf("schedule %s %s %v: tick %v has %d runs, want %d", s.Name, s.Cron, s.Every, tick, n, want)
		}
		delete(fired, tick)
	}
	if len(fired) > 0 {
		t.Errorf("schedule %s: runs of no tick: %v", s.Name, fired)
	}
	return len(runs)
}

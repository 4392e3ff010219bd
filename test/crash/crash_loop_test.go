//go:build unix

package crash_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

// mostRecoveries is how often a run may lose its worker before it becomes a crash-loop suspect.
const mostRecoveries = 20

// A run that has lost its worker too often without progress is quarantined. Other runs continue.
func TestCrashLoopIsQuarantined(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := kit.NewClient(t, db.Pool)
	poison := kit.StartRuns(t, c, oneStep, 1)[0]
	kit.LoseRun(t, db.Pool, poison.ID(), mostRecoveries)
	others := kit.StartRuns(t, c, triple, 20)
	kit.StartLocal(t, localWorker(t, c, filepath.Join(t.TempDir(), "l"),
		kagzi.WorkerConfig{PollInterval: 100 * time.Millisecond}))
	kit.CheckResults(t, others, tripleResult)
	// From its third recovery on it waits first, minutes by now.
	await.True(t, "the poison run waits", func() bool {
		info, err := poison.Info(t.Context())
		return err == nil && info.Status == kagzi.StatusPending && info.WaitingOn.String() == "recovery" &&
			info.Recoveries == mostRecoveries+1 && time.Until(info.AvailableAt) > 3*time.Minute
	})
	dbtest.Exec(t, db.Pool, `UPDATE kagzi.workflow_runs SET available_at = now() WHERE run_id = $1`,
		string(poison.ID()))
	_, err := poison.Result(kit.Context(t))
	var failed *kagzi.RunError
	if !errors.As(err, &failed) || failed.Kind != kind.CrashLoop || failed.Status != kagzi.StatusFailed {
		t.Errorf("got %v, want kind crash_loop", err)
	}
}

// A run that has recorded a step since its recoveries began is no suspect and continues.
func TestProgressEndsACrashLoop(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := kit.NewClient(t, db.Pool)
	run := kit.StartRuns(t, c, triple, 1)[0]
	kit.LoseRun(t, db.Pool, run.ID(), mostRecoveries+5)
	dbtest.Exec(t, db.Pool, `UPDATE kagzi.workflow_runs SET status = 'PENDING', available_at = now()`)
	dbtest.Exec(t, db.Pool, `INSERT INTO kagzi.step_runs (run_id, step_id, attempt_number, namespace_id, status,
		step_kind, run_attempt, first_attempt, output, started_at, finished_at)
		SELECT run_id, 'one', 1, namespace_id, 'COMPLETED', 'FUNCTION', 1, 1, convert_to(to_json($1::text)::text,
			'UTF8'), now(), now() FROM kagzi.workflow_runs`, kit.Link("0", "one"))
	file := filepath.Join(t.TempDir(), "l")
	kit.StartLocal(t, localWorker(t, c, file, kagzi.WorkerConfig{}))
	kit.CheckResults(t, []*kagzi.Run[string]{run}, tripleResult)
	if n := countIn(t, file, "BEGIN"); n != 2 {
		t.Errorf("%d steps were executed, want the 2 that were not recorded", n)
	}
	if info, err := run.Info(t.Context()); err != nil || info.Recoveries != 0 {
		t.Errorf("recoveries %d, %v; want 0", info.Recoveries, err)
	}
}

// suspended are runs that are crash-loop suspects and due, and a worker whose handler reports the begin of each and
// waits for its gate.
type suspended struct {
	runs  []*kagzi.Run[int]
	begun chan int
	gates []chan struct{}
}

// suspectsOf starts n suspects, and as many other runs, which end at once. The suspects are due one after the other
// within a second. records makes each suspect record a step before it waits.
func suspectsOf(t *testing.T, n int, patience time.Duration, records bool) *suspended {
	t.Helper()
	db := dbtest.Database(t)
	c := kit.NewClient(t, db.Pool)
	s := &suspended{begun: make(chan int, 100*n)}
	for range n {
		s.gates = append(s.gates, make(chan struct{}))
	}
	wf := kagzi.Define[int, int]("suspect")
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{PollInterval: time.Hour})
	kit.HooksOf(t, w).SuspectPatience = patience
	kagzi.Handle(w, wf, func(ctx kagzi.Context, i int) (int, error) {
		if records {
			if err := kagzi.Do(ctx, "first", func(context.Context) error { return nil }); err != nil {
				return 0, err
			}
		}
		return i, kagzi.Do(ctx, "s", func(ctx context.Context) error {
			if i < n {
				s.begun <- i
				select {
				case <-s.gates[i]:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
			return nil
		})
	})
	s.runs = kit.StartRuns(t, c, wf, 2*n)
	for _, r := range s.runs[:n] {
		kit.LoseRun(t, db.Pool, r.ID(), suspectFrom)
	}
	dbtest.Exec(t, db.Pool, `UPDATE kagzi.workflow_runs SET status = 'PENDING', available_at = now()
		+ CASE WHEN recoveries > 0 THEN random() ELSE 0 END * interval '1 second'`)
	kit.StartLocal(t, w)
	kit.CheckResults(t, s.runs[n:], func(i int) int { return n + i })
	return s
}

// half says in which of the first two groups a suspect is: the last bit of its ID.
func (s *suspended) half(i int) int {
	id := s.runs[i].ID()
	return strings.IndexByte("0123456789abcdef", id[len(id)-1]) & 1
}

// next waits until another suspect has begun.
func (s *suspended) next(t *testing.T) int {
	t.Helper()
	select {
	case i := <-s.begun:
		return i
	case <-time.After(await.Patience):
		t.Fatal("no further suspect begins")
		return 0
	}
}

// A worker executes half of the crash-loop suspects at once, beside the other runs, and the other half when these have
// ended, although no worker polls.
func TestSuspectsRunInGroups(t *testing.T) {
	t.Parallel()
	const n = 12
	s := suspectsOf(t, n, time.Hour, false)
	for left := n; left > 0; {
		first := s.next(t)
		group := []int{first}
		for i := range n {
			if i != first && s.half(i) == s.half(first) {
				group = append(group, s.next(t))
			}
		}
		for _, i := range group {
			if s.half(i) != s.half(first) {
				t.Errorf("suspect %s begins beside %s", s.runs[i].ID(), s.runs[first].ID())
			}
			close(s.gates[i])
		}
		left -= len(group)
	}
	kit.CheckResults(t, s.runs[:n], func(i int) int { return i })
}

// A suspect that hangs holds up no other: these begin beside it after a while.
func TestSuspectThatHangsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	const n = 12
	s := suspectsOf(t, n, 50*time.Millisecond, false)
	hangs := s.next(t)
	for range n - 1 {
		close(s.gates[s.next(t)])
	}
	for i, r := range s.runs[:n] {
		if i == hangs {
			continue
		}
		if _, err := r.Result(kit.Context(t)); err != nil {
			t.Error(err)
		}
	}
	if info, err := s.runs[hangs].Info(t.Context()); err != nil || info.Status != kagzi.StatusRunning {
		t.Errorf("the suspect that hangs is %s, %v", info.Status, err)
	}
	close(s.gates[hangs])
	kit.CheckResults(t, s.runs[hangs:hangs+1], func(int) int { return hangs })
}

// Suspects that have recorded a step hold up no other, although they are still under way.
func TestProgressLetsTheNextSuspectsBegin(t *testing.T) {
	t.Parallel()
	const n = 12
	s := suspectsOf(t, n, time.Hour, true)
	for range n {
		s.next(t)
	}
	for _, gate := range s.gates {
		close(gate)
	}
	kit.CheckResults(t, s.runs[:n], func(i int) int { return i })
}

// A run kills its process again and again, and a supervisor starts the next process. The other runs complete, and the
// suspect is executed at growing intervals.
func TestRunThatKillsItsWorker(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	dbtest.Exec(t, db.Pool, createEffects)
	c := kit.NewClient(t, db.Pool)
	poison := kit.StartRuns(t, c, oneStep, 1)[0] // alone in having a step that is not transactional
	spec := workerSpec{
		DSN: db.DSN, Ledger: filepath.Join(t.TempDir(), "l"), Config: kit.Quick, Point: "during step",
		Nth: 1, Signal: syscall.SIGKILL,
	}
	died := 0
	next := func() *process {
		// no need to wait
		dbtest.Exec(t, db.Pool, `UPDATE kagzi.workers SET heartbeat_at = now() - interval '1 hour'
			WHERE status <> 'OFFLINE'`)
		return startProcess(t, spec)
	}
	for range suspectFrom {
		next().killed(t)
		died++
	}
	others := kit.StartRuns(t, c, oneTx, 20)
	p := next()
	await.True(t, "the others complete", func() bool {
		select {
		case <-p.done:
			p.killed(t)
			died++
			p = next()
		default:
		}
		return dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workflow_runs
			WHERE status = 'COMPLETED'`) == len(others)
	})
	kit.CheckResults(t, others, func(i int) string { return kit.Link(fmt.Sprint(i), "one") })
	await.True(t, "the poison run is a suspect", func() bool {
		info, err := poison.Info(t.Context())
		if err != nil || info.Status.Ended() {
			t.Fatalf("the poison run is %s, %v", info.Status, err)
		}
		return info.Recoveries >= suspectFrom
	})
	t.Logf("%d processes died of it", died)
}

const suspectFrom = 3 // recoveries

//go:build unix

package crash_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/campaign"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

var limited = kagzi.Define[int, int]("limited")

// limitedSteps is how many limited steps each run of limited has.
const limitedSteps = 16

// limited executes its steps on so many branches, one after the other on each. They write down when they enter and
// exit. A run with one branch has nothing else that would wake it, if the limit does not.
func (l workload) limited(ctx kagzi.Context, branches int) (int, error) {
	out, err := kagzi.Map(ctx, "each", make([]int, branches), func(ctx kagzi.Context, _ int) (n int, err error) {
		for i := 0; i < limitedSteps/branches && err == nil; i++ {
			_, err = kagzi.Step(ctx, fmt.Sprint("call", i), l.callLimited, kagzi.Limit("api"))
		}
		return limitedSteps / branches, err
	})
	sum := 0
	for _, n := range out {
		sum += n
	}
	return sum, err
}

func (l workload) callLimited(context.Context) (int, error) {
	l.led.write("ENTER", os.Getpid())
	defer l.led.write("EXIT", os.Getpid())
	l.reach("during step")
	<-time.After(5 * time.Millisecond) // also if it is cancelled: the slot counts until it returns
	return 1, nil
}

// mostInside returns the most functions that were executed at the same time. The lines of all processes are in one
// file, in the order in which they were written.
func mostInside(t *testing.T, file string) (most int) {
	t.Helper()
	lines, err := readLedger(file)
	if err != nil {
		t.Fatal(err)
	}
	all, inside, dead := 0, map[string]int{}, map[string]bool{}
	for _, l := range lines {
		pid := l[len(l)-1]
		switch {
		case dead[pid]: // it was written while the process was being killed
		case l[0] == "ENTER":
			inside[pid]++
			all++
		case l[0] == "EXIT":
			inside[pid]--
			all--
		case l[0] == "DEAD" || l[0] == "REACHED":
			all -= inside[pid]
			dead[pid] = true
		}
		most = max(most, all)
	}
	return most
}

// TestLimitHoldsThroughAllTroubles has three or four worker processes with one or two slots between them. Meanwhile
// processes are killed, also before a worker learns what a limit has granted, connections ended, answers lost or
// delayed, and runs cancelled. There are never more functions under way than slots, and no slot is lost.
func TestLimitHoldsThroughAllTroubles(t *testing.T) {
	t.Parallel()
	for _, slots := range campaign.Some([]int{2, 1}, 1) {
		t.Run(fmt.Sprint(slots), func(t *testing.T) {
			t.Parallel()
			newLimitTrouble(t, slots).run()
		})
	}
}

// A limitTrouble is a fleet whose runs execute limited steps, and what has happened to it.
type limitTrouble struct {
	*testing.T
	db        *dbtest.DB
	client    *kagzi.Client
	proxy     *pgproxy.Proxy
	random    *rand.Rand
	slots     int
	file      string
	led       *ledger
	processes []*process
	mortal    *process // it kills itself soon, or is killed; nil: there is none
	runs      []*kagzi.Run[int]
	cancelled map[int]bool
}

// limitedRuns is how many runs there are: few, so that the line is short and a run is soon called.
const limitedRuns = 16

func newLimitTrouble(t *testing.T, slots int) *limitTrouble {
	db := dbtest.Database(t)
	l := &limitTrouble{
		T: t, db: db, client: kit.NewClient(t, db.Pool), proxy: pgproxy.Start(t, db.DSN), slots: slots,
		cancelled: map[int]bool{},
		random:    rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano()))), file: filepath.Join(t.TempDir(), "ledger"),
	}
	var err error
	if l.led, err = openLedger(l.file); err != nil {
		t.Fatal(err)
	}
	if err := admin.New(l.client).Limits.Set(t.Context(), admin.StepLimit{Name: "api", MaxRunning: slots}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.explain)
	return l
}

// start starts a worker process. If dies is not zero, the process kills itself once it has had so many answers of the
// limit, and no code has read the last one.
func (l *limitTrouble) start(dies int) *process {
	cfg := kit.Quick
	cfg.MaxConcurrent, cfg.StaleAfter = 10, 10*time.Second // a dead worker is missed by its connection
	spec := workerSpec{DSN: l.proxy.DSN(), Ledger: l.file, Config: cfg}
	if dies > 0 {
		spec.Point, spec.Nth, spec.Signal = "after limit", dies, syscall.SIGKILL
	}
	return startProcess(l.T, spec)
}

func (l *limitTrouble) run() {
	for range 3 {
		l.processes = append(l.processes, l.start(0))
	}
	for i := range limitedRuns {
		run, err := kagzi.Start(l.Context(), l.client, limited, []int{1, 1, 4}[i%3])
		if err != nil {
			l.Fatal(err)
		}
		l.runs = append(l.runs, run)
	}
	for round := range campaign.Size(6, 15) {
		await.True(l, "the workers go on", func() bool {
			return countIn(l, l.file, "EXIT") >= 10*(round+1) || left(l.T, l.db) == 0
		})
		l.trouble(round)
	}
	// a run that is stuck sleeps for longer
	await.TrueWithin(l, 4*await.Patience, "the runs end", func() bool { return left(l.T, l.db) == 0 })
	for i, run := range l.runs {
		if got, err := run.Result(l.Context()); !l.cancelled[i] && (err != nil || got != limitedSteps) {
			l.Fatalf("run %d: %v, %v", i, got, err)
		}
	}
	for _, p := range l.processes {
		p.stop(l)
	}
	if most := mostInside(l.T, l.file); most != l.slots {
		l.Errorf("%d functions at the same time, want at most %d, and all slots used", most, l.slots)
	}
}

func (l *limitTrouble) trouble(round int) {
	serving := pgproxy.Contains("INSERT INTO kagzi.limit_places")
	switch round % 5 {
	case 0:
		l.kill(l.processes[0])
		l.processes = append(l.processes[1:], l.start(0))
		if l.mortal != nil {
			l.kill(l.mortal)
		}
		l.mortal = l.start(5 + l.random.IntN(20))
	case 1:
		dbtest.Exec(l, l.db.Pool, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid() AND random() < 0.5`)
		l.db.Pool.Reset() // the test's own connections may be among them
	case 2:
		i := l.random.IntN(limitedRuns)
		l.cancelled[i] = true
		if err := l.client.Cancel(l.Context(), l.runs[i].ID()); err != nil {
			l.Log("cancel: ", err)
		}
	case 3:
		l.proxy.DropAck(serving)
	case 4: // for so long that a slot is not kept any more for the runs of the one who waits
		hold := l.proxy.HoldAck(serving)
		await.BecomesTrue(2*time.Second, func() bool { return left(l.T, l.db) == 0 })
		hold.Release()
	}
}

func (l *limitTrouble) kill(p *process) {
	_ = p.cmd.Process.Kill()
	p.killed(l)
	l.led.write("DEAD", p.cmd.Process.Pid)
}

// explain logs what the limit and the runs wait for, if the test has failed.
func (l *limitTrouble) explain() {
	if !l.Failed() {
		return
	}
	for _, rows := range []string{
		`SELECT now()::text`,
		`SELECT c::text FROM kagzi.limits c`,
		`SELECT p::text FROM kagzi.limit_places p ORDER BY p.asked_at`,
		`SELECT concat_ws(' ', r.run_id, r.status, r.available_at, 'wakeups', r.wakeups, 'of', r.wakeups_awaited,
			'lease', r.lease, r.locked_by, r.waiting_on) FROM kagzi.workflow_runs r WHERE r.finished_at IS NULL`,
	} {
		l.Logf("%s:\n%s", rows, dbtest.QueryOne[string](l, l.db.Pool, `SELECT coalesce(string_agg(x.line, E'\n'), '')
			FROM (`+rows+`) x (line)`))
	}
}

func left(t *testing.T, db *dbtest.DB) int {
	return dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workflow_runs WHERE finished_at IS NULL`)
}

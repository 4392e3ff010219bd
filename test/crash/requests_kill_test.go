//go:build unix

package crash_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/request"
)

var (
	asked = kagzi.Define[bool, string]("asked", kit.NoRetry)
	named = request.Define[string, string]("named")
)

// asked answers a request with the process that executes it, so that an answer says which execution has given it. With
// slow, a step comes between: what the run has read is recorded before it answers.
func (l workload) asked(ctx kagzi.Context, slow bool) (string, error) {
	r, err := request.Wait(ctx, named)
	if err != nil {
		return "", err
	}
	if slow {
		for _, name := range []string{"between", "next"} { // one flush: the second is written with the reply
			if _, err := l.step(ctx, name, r.In); err != nil {
				return "", err
			}
		}
	}
	l.led.write("REPLIES", r.In) // no flush begins between this line and Reply
	if err := r.Reply(ctx, fmt.Sprint(r.In, " of ", os.Getpid())); err != nil {
		return "", err
	}
	return kagzi.WaitSignal(ctx, parted)
}

// TestKillBetweenReplyAndRecord kills a worker process when its run has answered a request: before the answer is
// recorded, and after that. Another process takes the run over and answers again. All who ask with the request's ID,
// before and after, get one answer: that of the execution which has recorded it first.
func TestKillBetweenReplyAndRecord(t *testing.T) {
	t.Parallel()
	for _, kill := range []replyKill{
		{point: "before flush", nth: 1},
		{point: "before flush", nth: 2, slow: true},
		{point: "after flush", nth: 1, recorded: true},
		{point: "after flush", nth: 2, slow: true, recorded: true},
	} {
		t.Run(fmt.Sprint(strings.ReplaceAll(kill.point, " ", "-"), kill.nth), func(t *testing.T) {
			t.Parallel()
			db := dbtest.Database(t)
			dbtest.Audit(t, db.Pool)
			c, ctx := kit.NewClient(t, db.Pool), kit.Context(t)
			run, err := kagzi.Start(ctx, c, asked, kill.slow)
			if err != nil {
				t.Fatal(err)
			}
			const askers = 3
			answers := make(chan string, askers)
			ask := func(c *kagzi.Client) {
				answer, err := request.Ask(ctx, c, run, named.With("Ada").WithID("q"))
				if err != nil {
					t.Errorf("ask: %v", err)
				}
				answers <- answer
			}
			for range askers {
				go ask(c)
			}
			await.True(t, "the request is stored", func() bool {
				return dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.signals`) == 1
			})
			want := fmt.Sprint("Ada of ", os.Getpid())
			if pid := kill.happen(t, db); kill.recorded {
				want = fmt.Sprint("Ada of ", pid)
			}
			rescuer := filepath.Join(t.TempDir(), "l")
			kit.StartLocal(t, localWorker(t, c, rescuer, kit.Quick))
			for range askers {
				if got := await.Receive(t, answers); got != want {
					t.Errorf("got %q, want %q", got, want)
				}
			}
			if err := c.Signal(ctx, run, parted.With("over")); err != nil {
				t.Fatal(err)
			}
			if _, err := run.Result(ctx); err != nil {
				t.Fatal(err)
			}
			if countIn(t, rescuer, "REPLIES", "Ada") == 0 {
				t.Error("the code of the other process has not come to the request again")
			}
			ask(kit.NewClient(t, db.Pool))
			if got := await.Receive(t, answers); got != want {
				t.Errorf("asked again: got %q, want %q", got, want)
			}
			if n := dbtest.QueryOne[int](t, db.Pool, countReplies); n != 1 {
				t.Errorf("%d answers are recorded", n)
			}
		})
	}
}

const countReplies = `SELECT count(*) FROM kagzi.step_runs WHERE step_kind = 'REPLY'`

// A replyKill is the moment at which a process is killed whose run has answered a request.
type replyKill struct {
	point    string
	nth      int // the flush that has the answer
	slow     bool
	recorded bool // the answer is, at the kill
}

// happen starts a worker process, waits until it is dead, and returns its ID. Its runs are due for others.
func (k replyKill) happen(t *testing.T, db *dbtest.DB) (pid int) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "l")
	victim := startProcess(t, workerSpec{
		DSN: db.DSN, Ledger: file, Config: kit.Quick, Point: k.point, Nth: k.nth, Signal: syscall.SIGKILL,
	})
	victim.killed(t)
	if n := countIn(t, file, "REPLIES"); n != 1 {
		t.Fatalf("INVALID: the run had answered %d times at the kill", n)
	}
	if n := dbtest.QueryOne[int](t, db.Pool, countReplies); (n == 1) != k.recorded {
		t.Fatalf("INVALID: %d answers were recorded at the kill", n)
	}
	n := dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.signals WHERE consumed_by IS NOT NULL`)
	if (n == 1) != (k.recorded || k.slow) {
		t.Fatalf("INVALID: %d requests counted as read at the kill", n)
	}
	dbtest.Exec(t, db.Pool, `UPDATE kagzi.workers SET heartbeat_at = now() - interval '1 hour'`) // no need to wait
	return victim.cmd.Process.Pid
}

package language_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
)

// An amnesia is a run whose database loses rows while a worker has the run in memory, as a failover to an asynchronous
// standby does. Each step returns its name and how often it was executed.
type amnesia struct {
	k    *kit.Kit
	mu   sync.Mutex
	done map[string]int
	lost bool

	met      atomic.Int64
	together chan struct{} // closed by meet
}

func (a *amnesia) executed(name string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.done[name]++
	return fmt.Sprint(name, a.done[name], " ")
}

func (a *amnesia) step(ctx kagzi.Context, name string, also func(), opts ...kagzi.StepOption) string {
	v, err := kagzi.Step(ctx, name, func(context.Context) (string, error) {
		if also != nil {
			also()
		}
		return a.executed(name), nil
	}, opts...)
	if err != nil {
		a.k.T.Errorf("step %q: %v", name, err)
	}
	return v
}

func (a *amnesia) stepTx(ctx kagzi.Context, name string, also func()) string {
	v, err := kagzi.StepTx(ctx, name, func(context.Context, pgx.Tx) (string, error) {
		if also != nil {
			also()
		}
		return a.executed(name), nil
	})
	if err != nil {
		a.k.T.Errorf("step %q: %v", name, err)
	}
	return v
}

// both executes two transactional steps whose commits have no known order, and a step that loses one of them.
func (a *amnesia) both(ctx kagzi.Context, loses string) (string, error) {
	var v [2]string
	branch := func(i int, name string) func(kagzi.Context) error {
		return func(ctx kagzi.Context) error {
			v[i] = a.stepTx(ctx, name, a.meet)
			return nil
		}
	}
	err := kagzi.Parallel(ctx, "both", map[string]func(kagzi.Context) error{"x": branch(0, "x"), "y": branch(1, "y")})
	return v[0] + v[1] + a.step(ctx, "c", a.loses(ctx, loses)), err
}

// meet returns when two have called it.
func (a *amnesia) meet() {
	if a.met.Add(1) == 2 {
		close(a.together)
	}
	<-a.together
}

// loses returns a function that waits until the step is recorded, and deletes the record, the first time.
func (a *amnesia) loses(ctx kagzi.Context, step string) func() {
	// The row that shows the present step, if that is under way for a second, is lost with it.
	lose := a.once(`WITH d AS (DELETE FROM kagzi.step_runs
		WHERE run_id = $1 AND (step_id = $2 OR status = 'RUNNING') RETURNING step_id)
		SELECT 1/count(*) FROM d WHERE step_id = $2`, ctx.RunID(), step)
	return func() {
		a.recorded(ctx, step)
		lose()
	}
}

// recorded returns when the step is recorded.
func (a *amnesia) recorded(ctx kagzi.Context, step string) {
	await.True(a.k.T, step+" is recorded", func() bool {
		return a.k.Count(`SELECT count(*) FROM kagzi.step_runs WHERE run_id = $1 AND step_id = $2`,
			ctx.RunID(), step) == 1
	})
}

// once returns a function that executes the statement, the first time. It ends all connections, as a failover does: one
// that outlived it would vouch for its server. A write between the statement and the second Reset meets a connection
// that was opened after the record was sent, and a write before the statement is made over one that ends.
func (a *amnesia) once(sql string, args ...any) func() {
	return func() {
		a.mu.Lock()
		first := !a.lost
		a.lost = true
		a.mu.Unlock()
		if first {
			a.k.Pool.Reset()
			a.k.Exec(sql, args...)
			a.k.Pool.Reset()
		}
	}
}

// TestRunsGoOnFromTheRecordsThatAreLeft shows that a worker writes nothing over a hole in a run's records. It gives the
// run back, and what the database has lost is executed again.
func TestRunsGoOnFromTheRecordsThatAreLeft(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		fn   func(ctx kagzi.Context, a *amnesia) (string, error)
		want string
	}{
		{"AStep", func(ctx kagzi.Context, a *amnesia) (string, error) {
			return a.step(ctx, "a", nil) + a.step(ctx, "b", nil) + a.step(ctx, "c", a.loses(ctx, "b")), nil
		}, "a1 b2 c2 "},
		{"AStepTx", func(ctx kagzi.Context, a *amnesia) (string, error) {
			return a.step(ctx, "a", nil) + a.stepTx(ctx, "b", nil) + a.step(ctx, "c", a.loses(ctx, "b")), nil
		}, "a1 b2 c2 "},
		{"BeforeAStepTx", func(ctx kagzi.Context, a *amnesia) (string, error) {
			return a.step(ctx, "a", nil) + a.stepTx(ctx, "b", a.loses(ctx, "a")), nil
		}, "a2 b2 "},
		{"Repeatable", func(ctx kagzi.Context, a *amnesia) (string, error) {
			return a.step(ctx, "a", nil, kagzi.Repeatable()) + a.step(ctx, "b", nil) +
				a.step(ctx, "c", a.loses(ctx, "b"), kagzi.Repeatable()), nil
		}, "a1 b2 c2 "},
		{"AtTheEnd", func(ctx kagzi.Context, a *amnesia) (string, error) {
			v := a.step(ctx, "a", nil)
			a.loses(ctx, "a")()
			return v, nil
		}, "a2 "},
		{"AtAFailure", func(ctx kagzi.Context, a *amnesia) (string, error) {
			v := a.step(ctx, "a", nil)
			if a.loses(ctx, "a")(); v == "a1 " {
				return "", errors.New("of an execution that has lost its record")
			}
			return v, nil
		}, "a2 "},
		{"AtASuspension", func(ctx kagzi.Context, a *amnesia) (string, error) {
			v := a.step(ctx, "a", nil)
			a.loses(ctx, "a")()
			return v, kagzi.Sleep(ctx, "sleep", 300*time.Millisecond)
		}, "a2 "},
		{"TheFirstOfTwoTransactions", func(ctx kagzi.Context, a *amnesia) (string, error) {
			return a.both(ctx, "both/x/x")
		}, "x2 y1 c2 "},
		{"TheSecondOfTwoTransactions", func(ctx kagzi.Context, a *amnesia) (string, error) {
			return a.both(ctx, "both/y/y")
		}, "x1 y2 c2 "},
		{"AChildsStart", func(ctx kagzi.Context, a *amnesia) (string, error) {
			in := a.step(ctx, "a", nil)
			a.recorded(ctx, "a") // or one transaction could write both records, and no server loses one of the two
			c, err := kagzi.StartChild(ctx, "child", child, in)
			if err != nil {
				return "", err
			}
			v := a.step(ctx, "b", func() {
				await.True(a.k.T, "the child has ended", func() bool {
					return a.k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE run_id = $1
						AND status = 'COMPLETED'`, c.ID()) == 1
				})
				a.once(`WITH d AS (DELETE FROM kagzi.step_runs WHERE run_id = $1 AND step_id = 'child'
					RETURNING child_run_id) DELETE FROM kagzi.workflow_runs USING d
					WHERE run_id = child_run_id`, ctx.RunID())()
			})
			end, err := c.Result(ctx)
			return v + end, err
		}, "b2 a1 child2 "},
		{"AChildsEnd", func(ctx kagzi.Context, a *amnesia) (string, error) {
			c, err := kagzi.StartChild(ctx, "child", child, "")
			if err != nil {
				return "", err
			}
			end, err := c.Result(ctx)
			a.once(`UPDATE kagzi.workflow_runs SET status = 'PENDING', available_at = now(), finished_at = NULL,
				output = NULL WHERE run_id = $1`, c.ID())()
			return end + a.step(ctx, "b", nil), err
		}, "child2 b2 "},
		{"AMessage", func(ctx kagzi.Context, a *amnesia) (string, error) {
			if a.executed("wait") == "wait1 " {
				a.k.Signal(ctx.RunID(), kit.Approved.With("first "))
			}
			v, err := kagzi.WaitSignal(ctx, kit.Approved)
			if v == "first " { // the record of it is lost, too, if it is written already
				a.k.Pool.Reset()
				a.k.Exec(`UPDATE kagzi.workflow_runs SET wakeups = wakeups - 1 WHERE run_id = $1`, ctx.RunID())
				a.k.Exec(`DELETE FROM kagzi.signals WHERE run_id = $1`, ctx.RunID())
				a.k.Exec(`DELETE FROM kagzi.step_runs WHERE run_id = $1`, ctx.RunID())
				a.k.Signal(ctx.RunID(), kit.Approved.With("second "))
				a.k.Pool.Reset()
			}
			a.step(ctx, "b", nil) // twice, or once if the execution ends before it
			return v, err
		}, "second "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			k := kit.New(t)
			a := &amnesia{k: k, done: map[string]int{}, together: make(chan struct{})}
			w := kit.NewWorker(t, kit.NewClient(t, k.Pool), kagzi.WorkerConfig{LeaseTimeout: 10 * time.Minute})
			kagzi.Handle(w, amnesiac, func(ctx kagzi.Context, _ int) (string, error) { return tc.fn(ctx, a) })
			kagzi.Handle(w, child, func(_ kagzi.Context, in string) (string, error) {
				return in + a.executed("child"), nil
			})
			kit.StartWorker(t, w)
			run := kit.Begin(k, amnesiac, 1)
			if got := kit.ResultOf(k, run); got != tc.want {
				t.Errorf("result %q, want %q; executed %v", got, tc.want, a.done)
			}
			if n := k.Count(`SELECT count(*) FROM kagzi.step_runs a JOIN kagzi.step_runs s USING (run_id)
				WHERE a.step_id = 'a' AND s.step_id = 'sleep' AND s.position < a.position`); n > 0 {
				t.Error("the sleep was recorded before the step in front of it")
			}
		})
	}
}

var (
	amnesiac = kagzi.Define[int, string]("amnesiac", kit.NoRetry)
	child    = kagzi.Define[string, string]("child of an amnesiac")
)

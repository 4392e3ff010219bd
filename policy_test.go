package kagzi

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

func TestPoliciesThatAreRefusedBeforeAnySQL(t *testing.T) {
	t.Parallel()
	c := newTestClient(t, unreachable(t))
	_, err := Start(t.Context(), c, noop, 1, ID("x"), IfActive("x"))
	mustContain(t, err, "start noop", `no IfActive "x"`, "kagzi.ReturnActive")
	_, err = Start(t.Context(), c, Define[int, int]("wf", IfEnded("x")), 1)
	mustContain(t, err, "start wf", `no IfEnded "x"`, "kagzi.StartAgain")
	_, err = Start(t.Context(), c, noop, 1, RejectActive)
	mustContain(t, err, "start noop", `IfActive "reject_active" without an ID`, "kagzi.ID")
	_, err = c.StartMany(t.Context(), []Call{noop.With(1, ID("x")), noop.With(1)}, RejectEnded)
	mustContain(t, err, "call 1", `IfEnded "reject_ended" without an ID`)
	err = c.Schedule(t.Context(), Schedule{Name: "s", Every: time.Hour, Run: noop.With(1, ReplaceActive)})
	mustContain(t, err, `schedule "s"`, `no ID for IfActive "replace_active"`, "Overlap")
}

// As defaults they are about the starts that have an ID; the last of a kind wins.
func TestPoliciesAsDefaults(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("wf", RejectActive, RejectEnded)
	begin(k, wf, 1)
	begin(k, wf, 1)
	first := begin(k, wf, 1, ID("x"))
	if _, err := Start(k.ctx, k.c, wf, 1, ID("x")); !errors.Is(err, ErrIDTaken) {
		t.Errorf("got %v", err)
	}
	if again := begin(k, wf, 1, ID("x"), ReturnActive); !again.Existed() || again.ID() != first.ID() {
		t.Errorf("got %+v", again)
	}
	if again := begin(k, wf, 1, ID("x"), IfActive("")); !again.Existed() {
		t.Errorf("got %+v", again)
	}
	k.cancel(first.ID())
	if _, err := Start(k.ctx, k.c, wf, 1, ID("x"), ReturnActive); !errors.Is(err, ErrIDTaken) {
		t.Errorf("got %v", err)
	}
	if again := begin(k, wf, 1, ID("x"), StartAgain); again.Existed() {
		t.Errorf("got %+v", again)
	}
	k.schedule(Schedule{Name: "s", Every: time.Hour, Run: wf.With(1)})
}

func TestARefusalNamesTheRun(t *testing.T) {
	k := newKit(t)
	run := begin(k, noop, 1, ID("x"))
	_, err := Start(k.ctx, k.c, noop, 1, ID("x"), RejectActive)
	if !errors.Is(err, ErrIDTaken) || errors.Is(err, ErrIDConflict) || KindOf(err) != KindBadRequest {
		t.Errorf("got %v", err)
	}
	mustContain(t, err, `ID "x" is that of run `+string(run.ID())+` of workflow "noop", which is PENDING`)
	_, err = Start(k.ctx, k.c, noop, 2, ID("x"), RejectActive)
	if !errors.Is(err, ErrIDTaken) || !errors.Is(err, ErrIDConflict) {
		t.Errorf("another input: %v", err)
	}
	is := func(err error, want string) {
		t.Helper()
		if err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	is(err, `kagzi: start noop: ID "x" is that of run `+string(run.ID())+` of workflow "noop", which is PENDING and was started with another input`)
	_, err = Start(k.ctx, k.c, noop, 2, ID("x"))
	is(err, `kagzi: start noop: ID "x" is held by run `+string(run.ID())+` of workflow "noop", which was started with another input`)
	_, err = Start(k.ctx, k.c, Define[int, int]("another"), 1, ID("x"), ReplaceActive)
	if errors.Is(err, ErrIDTaken) || !errors.Is(err, ErrIDConflict) {
		t.Errorf("another workflow: %v", err)
	}
	is(err, `kagzi: start another: ID "x" is held by run `+string(run.ID())+` of workflow "noop": give the other workflow's run an ID of its own`)
}

// Each call has its own policies, and a refusal starts none of them.
func TestStartManyWithPolicies(t *testing.T) {
	k := newKit(t)
	old := begin(k, noop, 1, ID("a"))
	begin(k, noop, 1, ID("b"))
	calls := []Call{noop.With(2, ID("a"), ReplaceActive), noop.With(1, ID("b")), noop.With(3, ID("c"), RejectEnded), noop.With(1, ID("b2"), RejectActive)}
	if _, err := k.c.StartMany(k.ctx, append(calls, noop.With(1, ID("d"))), RejectActive); !errors.Is(err, ErrIDTaken) {
		t.Errorf("b under the policy that all share: %v", err)
	}
	if info, _ := old.Info(k.ctx); info.Status != StatusPending {
		t.Errorf("replaced by a call that was refused: %+v", info)
	}
	started, err := k.c.StartMany(k.ctx, calls)
	if err != nil || started[0].Existed || !started[1].Existed || started[2].Existed || started[3].Existed {
		t.Fatalf("got %+v, %v", started, err)
	}
	failureOf(k, old, StatusCancelled)
}

// Sixteen start the same again and again, while the run completes at once.
func TestRejectEndedRaces(t *testing.T) {
	k := newKit(t)
	serve(k, noop, odd)
	for round := range 5 {
		id := ID(fmt.Sprintf("x-%d", round))
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() {
				for {
					run, err := Start(k.ctx, k.c, noop, 1, id, RejectEnded)
					if errors.Is(err, ErrIDTaken) {
						return // it is over
					}
					if err != nil {
						t.Error(err)
						return
					}
					if _, err := run.Result(k.ctx); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		if n := k.count(`SELECT count(*) FROM kagzi.workflow_runs WHERE external_id = $1`, string(id)); n != 1 {
			t.Errorf("%d runs, want 1", n)
		}
	}
}

// The execution of a run that is replaced ends by the announcement: the worker does not look by itself.
func TestReplaceActiveEndsTheExecution(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"SameClient", "AnotherClient", "InTx", "Many"} {
		t.Run(way, func(t *testing.T) {
			k := newKit(t)
			wf := Define[int, int]("wf", ID("x"))
			inStep, ended := make(chan struct{}), make(chan error, 1)
			worker := k.c
			if way != "SameClient" { // another process: it learns by NOTIFY alone
				worker = newTestClient(t, k.pool)
			}
			cfg := WorkerConfig{Heartbeat: 10 * time.Minute, StaleAfter: 30 * time.Minute, LeaseTimeout: time.Hour}
			w := newTestWorker(t, worker, cfg)
			Handle(w, wf, func(ctx Context, n int) (int, error) {
				if n != 1 {
					return n, nil
				}
				return 0, Do(ctx, "wait", func(ctx context.Context) error {
					close(inStep)
					<-ctx.Done()
					ended <- context.Cause(ctx)
					return nil
				})
			})
			startWorker(t, w)
			waitListening(t, k.pool, 1)
			old := begin(k, wf, 1)
			<-inStep
			var id RunID
			switch way {
			case "InTx":
				tx := k.callersTx()
				id = begin(k, wf, 2, ReplaceActive, InTx(tx)).ID()
				commitTx(t, tx)
			case "Many":
				started, err := k.c.StartMany(k.ctx, []Call{noop.With(1, Queue("none")), wf.With(2, ReplaceActive)})
				if err != nil {
					t.Fatal(err)
				}
				id = started[1].ID
			default:
				id = begin(k, wf, 2, ReplaceActive).ID()
			}
			select {
			case err := <-ended:
				if !errors.Is(err, KindCancelled) {
					t.Errorf("cause %v", err)
				}
			case <-k.ctx.Done():
				t.Fatal("the replaced run is executed still")
			}
			failureOf(k, old, StatusCancelled)
			run, err := Find(k.ctx, k.c, wf, ID("x"))
			if err != nil || run.ID() != id {
				t.Fatalf("the ID is that of %+v, %v; want %s", run, err, id)
			}
			if got := resultOf(k, run); got != 2 {
				t.Errorf("result %d", got)
			}
		})
	}
}

// Of many that replace each other one is left, and that one completes.
func TestReplaceActiveRaces(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("wf", ID("x"), ReplaceActive)
	release := make(chan struct{})
	serve(k, wf, func(ctx Context, n int) (int, error) {
		return Step(ctx, "wait", func(ctx context.Context) (int, error) {
			select {
			case <-release:
			case <-ctx.Done():
			}
			return n, ctx.Err()
		})
	})
	const n = 16
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			for range 3 {
				if _, err := Start(k.ctx, k.c, wf, i); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if got := k.count(`SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'CANCELLED'`); got != 3*n-1 {
		t.Errorf("%d runs were replaced, want %d", got, 3*n-1)
	}
	last, err := Find(k.ctx, k.c, wf, ID("x")) // the active one
	if err != nil {
		t.Fatal(err)
	}
	close(release)
	resultOf(k, last)
	if got := k.count(`SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'COMPLETED'`); got != 1 {
		t.Errorf("%d runs completed, want 1", got)
	}
}

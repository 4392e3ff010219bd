package language_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
)

func TestSignalWithStart(t *testing.T) {
	t.Parallel()
	t.Run("StartsOrSignals", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[struct{}, string]("wf")
		kit.ServeWith(k, kit.NotifiedOnly, wf, reading(4, kit.Approved))
		first := kit.Begin(k, wf, struct{}{}, kagzi.ID("x"), kit.Approved.With("a"), kit.Approved.With("b"))
		k.WaitStatus(first.ID(), kagzi.StatusSleeping)
		second := kit.Begin(k, wf, struct{}{}, kit.Approved.With("c"), kagzi.ID("x"))
		if !second.Existed() || second.ID() != first.ID() {
			t.Errorf("existed %t, run %s; want %s", second.Existed(), second.ID(), first.ID())
		}
		started, err := k.Client.StartMany(k.Ctx, []kagzi.Call{
			wf.With(struct{}{}, kit.Approved.With("other")), wf.With(struct{}{}),
			wf.With(struct{}{}, kagzi.ID("x"), kit.Approved.With("d")),
		})
		if err != nil || !started[2].Existed || started[0].Existed {
			t.Fatalf("started %v, %v", started, err)
		}
		if got := kit.ResultOf(k, first); got != "a b c d" {
			t.Errorf("got %q", got)
		}
		again := kit.Begin(k, wf, struct{}{}, kagzi.ID("x"), kit.Approved.With("a"))
		if again.Existed() {
			t.Error("found a run that is over")
		}
		if n := k.Count(`SELECT count(*) FROM kagzi.signals WHERE run_id = $1`, started[0].ID); n != 1 {
			t.Errorf("%d messages of the run without an ID", n)
		}
	})
	// A start that is repeated outside of a step sends a message once if the message has an ID.
	t.Run("Repeated", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[struct{}, string]("wf")
		for range 2 {
			kit.Begin(k, wf, struct{}{}, kagzi.ID("x"), kit.Approved.With("a").WithID("m"),
				kit.Approved.With("b").WithID("n"))
		}
		k.Signal(kagzi.ID("x"), kit.Approved.With("a").WithID("m"))
		k.Signal(kagzi.ID("x"), kit.Approved.With("a").WithID("o"))
		if got := dbtest.QueryOne[string](t, k.Pool, `SELECT string_agg(signal_id, ' ' ORDER BY sequence)
			FROM kagzi.signals`); got != "m n o" {
			t.Errorf("stored %s", got)
		}
		_, err := kagzi.Start(k.Ctx, k.Client, wf, struct{}{}, kit.Approved.With("a").WithID("m"),
			kit.Rejected.With("").WithID("m"))
		kit.MustContain(t, err, `two messages have the ID "m"`)
	})
	// The input is for the run that a start makes: an active run gets the messages, whatever its own input was.
	t.Run("AnotherInput", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[int, string]("wf")
		first := kit.Begin(k, wf, 1, kagzi.ID("x"))
		tx := k.CallersTx()
		for _, opts := range [][]kagzi.StartOption{nil, {kagzi.InTx(tx)}} {
			run, err := kagzi.Start(k.Ctx, k.Client, wf, 2, append(opts, kagzi.ID("x"), kit.Approved.With("a"))...)
			if err != nil || run.ID() != first.ID() || !run.Existed() {
				t.Errorf("got %v, %v", run, err)
			}
		}
		if err := tx.Commit(k.Ctx); err != nil {
			t.Error(err)
		}
		started, err := k.Client.StartMany(k.Ctx, []kagzi.Call{
			wf.With(3, kagzi.ID("x"), kit.Approved.With("a")),
			wf.With(3, kagzi.ID("y")),
		})
		if err != nil || !started[0].Existed || started[1].Existed {
			t.Errorf("got %v, %v", started, err)
		}
		if n := k.Count(unread); n != 3 {
			t.Errorf("%d messages, want 3", n)
		}
		if got := string(k.InfoOf(first.ID()).Input); got != "1" {
			t.Errorf("input %s, want the first", got)
		}
		_, err = kagzi.Start(k.Ctx, k.Client, wf, 4, kagzi.ID("x"))
		if !errors.Is(err, kagzi.ErrIDConflict) {
			t.Errorf("without a message: %v", err)
		}
		_, err = kagzi.Start(k.Ctx, k.Client, wf, 4, kagzi.ID("x"), kagzi.RejectActive, kit.Approved.With("a"))
		if !errors.Is(err, kagzi.ErrIDTaken) || !errors.Is(err, kagzi.ErrIDConflict) {
			t.Errorf("rejected: %v", err)
		}
	})
	t.Run("AnotherWorkflow", func(t *testing.T) {
		k := kit.New(t)
		kit.Begin(k, kagzi.Define[int, string]("wf"), 1, kagzi.ID("x"))
		tx := k.CallersTx()
		for _, opts := range [][]kagzi.StartOption{nil, {kagzi.InTx(tx)}} {
			if _, err := kagzi.Start(k.Ctx, k.Client, kagzi.Define[int, string]("other"), 1,
				append(opts, kagzi.ID("x"), kit.Approved.With("a"))...); !errors.Is(err, kagzi.ErrIDConflict) {
				t.Errorf("got %v", err)
			}
		}
		if err := tx.Commit(k.Ctx); err != nil {
			t.Error(err)
		}
		if n := k.Count(unread); n != 0 {
			t.Errorf("%d messages", n)
		}
	})
	t.Run("InTx", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[struct{}, string]("wf")
		kit.ServeWith(k, kit.NotifiedOnly, wf, reading(2, kit.Approved))
		for _, commit := range []bool{false, true} {
			var run *kagzi.Run[string]
			err := pgx.BeginFunc(k.Ctx, k.Pool, func(tx pgx.Tx) (err error) {
				for _, v := range []string{"a", "b"} {
					if run, err = kagzi.Start(k.Ctx, k.Client, wf, struct{}{}, kagzi.ID("x"), kit.Approved.With(v),
						kagzi.InTx(tx)); err != nil {
						return err
					}
				}
				if !commit {
					return pgx.ErrTxClosed
				}
				return nil
			})
			if commit != (err == nil) {
				t.Fatal(err)
			}
			if !commit {
				if n := k.Count(unread) + k.Count(`SELECT count(*) FROM kagzi.workflow_runs`); n != 0 {
					t.Errorf("%d rows after the rollback", n)
				}
				continue
			}
			if got := kit.ResultOf(k, run); got != "a b" {
				t.Errorf("got %q", got)
			}
		}
	})
	// Runs of one ID end while others are signalled: each message is read by some run, once.
	t.Run("WhileRunsEnd", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[struct{}, string]("wf")
		kit.Serve(k, wf, reading(1, kit.Approved))
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				for j := range 20 {
					if _, err := kagzi.Start(k.Ctx, k.Client, wf, struct{}{}, kagzi.ID("x"),
						kit.Approved.With(fmt.Sprintf("%d-%d", i, j))); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		await.True(t, "all runs are over", func() bool {
			return k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE status <> 'COMPLETED'`) == 0
		})
		if n := k.Count(`SELECT count(DISTINCT payload) FROM kagzi.signals`); n != 80 {
			t.Errorf("%d messages were stored, want 80", n)
		}
	})
}

package kagzi

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

func TestSignalWithStart(t *testing.T) {
	t.Parallel()
	t.Run("StartsOrSignals", func(t *testing.T) {
		k := newKit(t)
		wf := Define[struct{}, string]("wf")
		serveWith(k, told, wf, reading(4, approved))
		first := begin(k, wf, struct{}{}, ID("x"), approved.With("a"), approved.With("b"))
		k.waitStatus(first.ID(), StatusSleeping)
		second := begin(k, wf, struct{}{}, approved.With("c"), ID("x"))
		if !second.Existed() || second.ID() != first.ID() {
			t.Errorf("existed %t, run %s; want %s", second.Existed(), second.ID(), first.ID())
		}
		started, err := k.c.StartMany(k.ctx, []Call{
			wf.With(struct{}{}, approved.With("other")), wf.With(struct{}{}), wf.With(struct{}{}, ID("x"), approved.With("d")),
		})
		if err != nil || !started[2].Existed || started[0].Existed {
			t.Fatalf("started %v, %v", started, err)
		}
		if got := resultOf(k, first); got != "a b c d" {
			t.Errorf("got %q", got)
		}
		again := begin(k, wf, struct{}{}, ID("x"), approved.With("a"))
		if again.Existed() {
			t.Error("found a run that is over")
		}
		if n := k.count(`SELECT count(*) FROM kagzi.signals WHERE run_id = $1`, started[0].ID); n != 1 {
			t.Errorf("%d messages of the run without an ID", n)
		}
	})
	// A start that is repeated outside of a step sends a message once if the message has an ID.
	t.Run("Repeated", func(t *testing.T) {
		k := newKit(t)
		wf := Define[struct{}, string]("wf")
		for range 2 {
			begin(k, wf, struct{}{}, ID("x"), approved.With("a").WithID("m"), approved.With("b").WithID("n"))
		}
		k.signal(ID("x"), approved.With("a").WithID("m"))
		k.signal(ID("x"), approved.With("a").WithID("o"))
		if got := queryOne[string](t, k.pool, `SELECT string_agg(signal_id, ' ' ORDER BY sequence) FROM kagzi.signals`); got != "m n o" {
			t.Errorf("stored %s", got)
		}
		_, err := Start(k.ctx, k.c, wf, struct{}{}, approved.With("a").WithID("m"), rejected.With("").WithID("m"))
		mustContain(t, err, `two messages have the ID "m"`)
	})
	// The input is for the run that a start makes: an active run gets the messages, whatever its own input was.
	t.Run("AnotherInput", func(t *testing.T) {
		k := newKit(t)
		wf := Define[int, string]("wf")
		first := begin(k, wf, 1, ID("x"))
		tx := k.callersTx()
		for _, opts := range [][]StartOption{nil, {InTx(tx)}} {
			run, err := Start(k.ctx, k.c, wf, 2, append(opts, ID("x"), approved.With("a"))...)
			if err != nil || run.ID() != first.ID() || !run.Existed() {
				t.Errorf("got %v, %v", run, err)
			}
		}
		if err := tx.Commit(k.ctx); err != nil {
			t.Error(err)
		}
		started, err := k.c.StartMany(k.ctx, []Call{wf.With(3, ID("x"), approved.With("a")), wf.With(3, ID("y"))})
		if err != nil || !started[0].Existed || started[1].Existed {
			t.Errorf("got %v, %v", started, err)
		}
		if n := k.count(unread); n != 3 {
			t.Errorf("%d messages, want 3", n)
		}
		if got := string(k.infoOf(first.ID()).Input); got != "1" {
			t.Errorf("input %s, want the first", got)
		}
		_, err = Start(k.ctx, k.c, wf, 4, ID("x"))
		if !errors.Is(err, ErrIDConflict) {
			t.Errorf("without a message: %v", err)
		}
		_, err = Start(k.ctx, k.c, wf, 4, ID("x"), RejectActive, approved.With("a"))
		if !errors.Is(err, ErrIDTaken) || !errors.Is(err, ErrIDConflict) {
			t.Errorf("rejected: %v", err)
		}
	})
	t.Run("AnotherWorkflow", func(t *testing.T) {
		k := newKit(t)
		begin(k, Define[int, string]("wf"), 1, ID("x"))
		tx := k.callersTx()
		for _, opts := range [][]StartOption{nil, {InTx(tx)}} {
			if _, err := Start(k.ctx, k.c, Define[int, string]("other"), 1, append(opts, ID("x"), approved.With("a"))...); !errors.Is(err, ErrIDConflict) {
				t.Errorf("got %v", err)
			}
		}
		if err := tx.Commit(k.ctx); err != nil {
			t.Error(err)
		}
		if n := k.count(unread); n != 0 {
			t.Errorf("%d messages", n)
		}
	})
	t.Run("InTx", func(t *testing.T) {
		k := newKit(t)
		wf := Define[struct{}, string]("wf")
		serveWith(k, told, wf, reading(2, approved))
		for _, commit := range []bool{false, true} {
			var run *Run[string]
			err := pgx.BeginFunc(k.ctx, k.pool, func(tx pgx.Tx) (err error) {
				for _, v := range []string{"a", "b"} {
					if run, err = Start(k.ctx, k.c, wf, struct{}{}, ID("x"), approved.With(v), InTx(tx)); err != nil {
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
				if n := k.count(unread) + k.count(`SELECT count(*) FROM kagzi.workflow_runs`); n != 0 {
					t.Errorf("%d rows after the rollback", n)
				}
				continue
			}
			if got := resultOf(k, run); got != "a b" {
				t.Errorf("got %q", got)
			}
		}
	})
	// Runs of one ID end while others are signalled: each message is read by some run, once.
	t.Run("WhileRunsEnd", func(t *testing.T) {
		k := newKit(t)
		wf := Define[struct{}, string]("wf")
		serve(k, wf, reading(1, approved))
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				for j := range 20 {
					if _, err := Start(k.ctx, k.c, wf, struct{}{}, ID("x"), approved.With(fmt.Sprintf("%d-%d", i, j))); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		waitFor(t, "all runs are over", func() bool {
			return k.count(`SELECT count(*) FROM kagzi.workflow_runs WHERE status <> 'COMPLETED'`) == 0
		})
		if n := k.count(`SELECT count(DISTINCT payload) FROM kagzi.signals`); n != 80 {
			t.Errorf("%d messages were stored, want 80", n)
		}
	})
}

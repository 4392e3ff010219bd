//go:build unix

package crash_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/testhook"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/topic"
)

var (
	chained = kagzi.Define[int, string]("chained", kagzi.RetryPolicy{Backoff: 10 * time.Millisecond})
	triple  = kagzi.Define[int, string]("triple")
	napping = kagzi.Define[time.Duration, string]("napping")
	oneStep = kagzi.Define[int, string]("one-step")
	oneTx   = kagzi.Define[int, string]("one-tx")
	relapse = kagzi.Define[int, string]("relapse", kagzi.RetryPolicy{Backoff: 300 * time.Millisecond, NoJitter: true})
	holding = kagzi.Define[string, string]("holding")
	mailed  = kagzi.Define[int, string]("mailed", greeted.With("g1"))
)

var (
	greeted = kagzi.DefineSignal[string]("greeted")
	parted  = kagzi.DefineSignal[string]("parted")
)

// chainedResult is what a chained run must return.
func chainedResult(n int) string {
	h := kit.Link(kit.Link(kit.Link(strconv.Itoa(n), "first"), "ledger"), "flaky")
	return kit.Link(kit.Link(kit.Link(h, "left"), "left2")+kit.Link(h, "right"), "last")
}

func tripleResult(n int) string {
	return kit.Link(kit.Link(kit.Link(strconv.Itoa(n), "one"), "two"), "three")
}

// mailedResult is the result of a mailed run that got the messages g1 to g4 and p.
func mailedResult(n int) string {
	h := strconv.Itoa(n)
	for i := 1; i <= 3; i++ {
		h = kit.Link(kit.Link(h, fmt.Sprint("g", i)), "read")
	}
	return kit.Link(kit.Link(kit.Link(h, "g4"), "p"), "last")
}

// createEffects makes the table that transactional steps write. It has no unique index: a step that committed twice
// is to be seen.
const createEffects = `CREATE TABLE effects (run_id text NOT NULL, step text NOT NULL)`

const insertEffect = `INSERT INTO effects (run_id, step) VALUES ($1, $2)`

// A workload's steps write down when they begin and end, and under which lease.
type workload struct {
	led   *ledger
	reach func(point string)
}

func (l workload) begin(ctx context.Context, lease uuid.UUID) (end func()) {
	s := kagzi.CurrentStep(ctx)
	l.led.write("BEGIN", s.Run, s.Step, s.Attempt, lease)
	return func() { l.led.write("END", s.Run, s.Step, s.Attempt, lease) }
}

func (l workload) step(ctx kagzi.Context, name, previous string) (string, error) {
	lease := ctx.(testhook.Branch).Lease()
	return kagzi.Step(ctx, name, func(ctx context.Context) (string, error) {
		defer l.begin(ctx, lease)()
		l.reach("during step")
		return kit.Link(previous, name), nil
	})
}

func (l workload) tx(ctx kagzi.Context, name, previous string) (string, error) {
	lease := ctx.(testhook.Branch).Lease()
	return kagzi.StepTx(ctx, name, func(ctx context.Context, tx pgx.Tx) (string, error) {
		defer l.begin(ctx, lease)()
		s := kagzi.CurrentStep(ctx)
		if _, err := tx.Exec(ctx, insertEffect, s.Run, s.Step); err != nil {
			return "", err
		}
		l.reach("during tx")
		return kit.Link(previous, name), nil
	})
}

// flaky fails in its first attempt.
func (l workload) flaky(ctx kagzi.Context, name, previous string) (string, error) {
	lease := ctx.(testhook.Branch).Lease()
	return kagzi.Step(ctx, name, func(ctx context.Context) (string, error) {
		defer l.begin(ctx, lease)()
		if kagzi.CurrentStep(ctx).Attempt == 1 {
			return "", errors.New("not yet")
		}
		return kit.Link(previous, name), nil
	}, kagzi.RetryPolicy{Backoff: 5 * time.Millisecond})
}

func (l workload) chained(ctx kagzi.Context, n int) (string, error) {
	h, err := l.step(ctx, "first", strconv.Itoa(n))
	if err != nil {
		return "", err
	}
	if err := tell(ctx, "tell", "told", "named"); err != nil {
		return "", err
	}
	if h, err = l.tx(ctx, "ledger", h); err != nil {
		return "", err
	}
	if h, err = l.flaky(ctx, "flaky", h); err != nil {
		return "", err
	}
	if err := kagzi.Sleep(ctx, "nap", 250*time.Millisecond); err != nil {
		return "", err
	}
	left := kagzi.Go(ctx, "l", func(ctx kagzi.Context) (string, error) {
		h, err := l.step(ctx, "left", h)
		if err := cmp.Or(err, tell(ctx, "tell", "left")); err != nil {
			return "", err
		}
		return l.step(ctx, "left2", h)
	})
	right := kagzi.Go(ctx, "r", func(ctx kagzi.Context) (string, error) { return l.step(ctx, "right", h) })
	a, err := left.Result(ctx)
	if err != nil {
		return "", err
	}
	b, err := right.Result(ctx)
	if err != nil {
		return "", err
	}
	if h, err = l.step(ctx, "last", a+b); err != nil {
		return "", err
	}
	return h, tell(ctx, "told", "end")
}

var told = topic.Define[string]("told")

// tell publishes an event for each of the words, in one transaction.
func tell(ctx kagzi.Context, name string, words ...string) error {
	var events []topic.NewEvent
	for _, word := range words {
		e := told.With(word).Title(string(ctx.RunID()))
		if word == "named" {
			e = e.WithID(kagzi.ID("named/" + ctx.RunID()))
		}
		events = append(events, e)
	}
	return topic.Publish(ctx, name, events...)
}

// checkTold checks that each chained run that is complete has published each of its events once, and in its order.
func checkTold(ctx context.Context, db *dbtest.DB) error {
	var n int
	err := db.Pool.QueryRow(ctx, `
		SELECT count(*) FROM kagzi.workflow_runs r
		WHERE r.workflow_type = 'chained' AND r.status = 'COMPLETED' AND (
			SELECT string_agg(convert_from(e.payload, 'UTF8'), ' ' ORDER BY e.position) FROM kagzi.events e
				WHERE e.topic = 'told' AND e.title = r.run_id::text
		) IS DISTINCT FROM '"told" "named" "left" "end"'`).Scan(&n)
	if err == nil && n != 0 {
		err = fmt.Errorf("%d runs have published other events", n)
	}
	return err
}

func (l workload) triple(ctx kagzi.Context, n int) (h string, err error) {
	h = strconv.Itoa(n)
	for _, name := range []string{"one", "two", "three"} {
		if h, err = l.step(ctx, name, h); err != nil {
			return "", err
		}
	}
	return h, nil
}

// mailed reads three messages one by one, races for two others, reads the loser's message afterwards, and waits in vain
// for another.
func (l workload) mailed(ctx kagzi.Context, n int) (string, error) {
	h := strconv.Itoa(n)
	for range 3 {
		v, err := kagzi.WaitSignal(ctx, greeted)
		if err != nil {
			return "", err
		}
		if h, err = l.step(ctx, "read", kit.Link(h, v)); err != nil {
			return "", err
		}
	}
	read := func(s kagzi.Signal[string]) func(kagzi.Context) (string, error) {
		return func(ctx kagzi.Context) (string, error) { return kagzi.WaitSignal(ctx, s) }
	}
	either := map[string]func(kagzi.Context) (string, error){
		"greeted": read(greeted),
		"parted":  read(parted.For("a/b")),
	}
	winner, v, err := kagzi.Race(ctx, "either", either)
	if err != nil {
		return "", err
	}
	got := map[string]string{winner: v}
	delete(either, winner)
	for loser, read := range either {
		if got[loser], err = read(ctx); err != nil {
			return "", err
		}
	}
	if v, err := kagzi.WaitSignal(ctx, parted, kagzi.Timeout(300*time.Millisecond)); !errors.Is(err, kind.Timeout) {
		return "", fmt.Errorf("a wait in vain got %q, %w", v, err)
	}
	return l.tx(ctx, "last", kit.Link(kit.Link(h, got["greeted"]), got["parted"]))
}

// hold waits in a step until its context ends, or until the file named by its input is there.
func (l workload) hold(ctx kagzi.Context, release string) (string, error) {
	lease := ctx.(testhook.Branch).Lease()
	return kagzi.Step(ctx, "hold", func(ctx context.Context) (string, error) {
		defer l.begin(ctx, lease)()
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				l.led.write("CAUSE", kagzi.CurrentStep(ctx).Run, context.Cause(ctx))
				return "", context.Cause(ctx)
			case <-tick.C:
			}
			if _, err := os.Stat(release); err == nil {
				return "held", nil
			}
		}
	})
}

func handleWorkloads(w *kagzi.Worker, led *ledger, reach func(string)) {
	l := workload{led, reach}
	handleFamilies(w, l)
	kagzi.Handle(w, chained, l.chained)
	kagzi.Handle(w, triple, l.triple)
	kagzi.Handle(w, mailed, l.mailed)
	kagzi.Handle(w, paying, l.paying)
	kagzi.Handle(w, holding, l.hold)
	kagzi.Handle(w, limited, l.limited)
	kagzi.Handle(w, flowing, l.flowing)
	kagzi.Handle(w, saga, l.saga)
	kagzi.Handle(w, undoSaga, l.undoSaga)
	kagzi.Handle(w, asked, l.asked)
	kagzi.Handle(w, oneStep, func(ctx kagzi.Context, n int) (string, error) {
		return l.step(ctx, "one", strconv.Itoa(n))
	})
	kagzi.Handle(w, oneTx, func(ctx kagzi.Context, n int) (string, error) { return l.tx(ctx, "one", strconv.Itoa(n)) })
	kagzi.Handle(w, kit.Nothing, func(_ kagzi.Context, n int) (string, error) { return strconv.Itoa(n), nil })
	kagzi.Handle(w, napping, func(ctx kagzi.Context, d time.Duration) (string, error) {
		if err := kagzi.Sleep(ctx, "nap", d); err != nil {
			return "", err
		}
		return "rested", nil
	})
	kagzi.Handle(w, relapse, func(ctx kagzi.Context, n int) (string, error) {
		if ctx.Attempt() == 1 {
			return "", errors.New("not yet")
		}
		return strconv.Itoa(n), nil
	})
}

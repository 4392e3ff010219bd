package operations_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/campaign"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

// A storm is random verbs on a few runs, from several goroutines, while workers execute them and coordinators delete
// them.
type storm struct {
	t       *testing.T
	ctx     context.Context
	pool    *pgxpool.Pool
	c       *kagzi.Client
	refused atomic.Int64 // verbs that did not apply
	done    atomic.Int64
}

var (
	stormed = kagzi.Define[int, int]("stormed")
	gust    = kagzi.Define[int, int]("gust")
	calm    = kagzi.DefineSignal[int]("calm")
)

// once runs fn as a step, and checks that no result of the step is recorded when it begins.
func (s *storm) once(ctx kagzi.Context, name string, fn func(context.Context) error) (string, error) {
	return kagzi.Step(ctx, name, func(ctx context.Context) (string, error) {
		step := kagzi.CurrentStep(ctx)
		var recorded int
		err := s.pool.QueryRow(context.WithoutCancel(ctx), `SELECT count(*) FROM kagzi.step_runs WHERE run_id = $1
			AND step_id = $2 AND status = 'COMPLETED'`,
			string(step.Run), step.Step).Scan(&recorded)
		if recorded > 0 {
			s.t.Errorf("run %s: step %q is recorded, and executed again", step.Run, step.Step)
		}
		if fn != nil {
			err = errors.Join(err, fn(ctx))
		}
		return uuid.NewString(), err
	}, kit.Soon)
}

func (s *storm) workflow(ctx kagzi.Context, n int) (int, error) {
	if n%3 == 0 {
		kagzi.Compensate(ctx, "undo", gust.With(1))
	}
	if _, err := s.once(ctx, "first", nil); err != nil {
		return 0, err
	}
	if n%4 == 1 {
		if _, err := kagzi.RunChild(ctx, "child", gust, n); err != nil {
			return 0, err
		}
	}
	if _, err := kagzi.WaitSignal(ctx, calm, kagzi.Timeout(time.Duration(20+n)*time.Millisecond)); err != nil &&
		!errors.Is(err, kind.Timeout) {
		return 0, err
	}
	if err := kagzi.DoTx(ctx, "tx", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO public.effects VALUES ($1)`, string(kagzi.CurrentStep(ctx).Run))
		return err
	}, kit.Soon); err != nil {
		return 0, err
	}
	_, err := s.once(ctx, "last", func(context.Context) error {
		if n%5 == 2 {
			return kagzi.Permanent(errors.New("it fails"))
		}
		return nil
	})
	return n, err
}

func (s *storm) worker() *kagzi.Worker {
	s.t.Helper()
	keep := kagzi.CoordinatorConfig{
		KeepCompleted: time.Second, KeepFailed: time.Second,
		Interval: 50 * time.Millisecond,
	}
	w := kit.NewWorker(s.t, kit.NewClient(s.t, s.pool), kagzi.WorkerConfig{Coordinator: keep})
	kagzi.Handle(w, stormed, s.workflow)
	kagzi.Handle(w, gust, func(ctx kagzi.Context, n int) (int, error) {
		_, err := s.once(ctx, "gust", nil)
		return n, errors.Join(err, kagzi.Sleep(ctx, "blow", time.Duration(n)*time.Millisecond))
	})
	return w
}

// verb calls a random verb for one of the runs. A quarter of the calls are in a transaction that stays open for a
// moment and is sometimes rolled back.
func (s *storm) verb(r *rand.Rand) error {
	id := kagzi.ID(fmt.Sprint("run ", r.IntN(6)))
	n := r.IntN(60)
	var tx pgx.Tx
	begin := []kagzi.StartOption{id}
	var change []kagzi.ChangeOption
	var restart []admin.RestartOption
	update := [][]admin.UpdateOption{
		{kagzi.Priority(1 + r.IntN(4)), kagzi.Metadata{"n": strconv.Itoa(n)}},
		{kagzi.Delay(time.Duration(n) * time.Millisecond)},
	}[r.IntN(2)]
	if r.IntN(4) == 0 {
		var err error
		if tx, err = s.pool.BeginTx(s.ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}); err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(s.ctx) }()
		begin, change, restart, update = append(begin, kagzi.InTx(tx)), append(change, kagzi.InTx(tx)),
			append(restart, kagzi.InTx(tx)), append(update, kagzi.InTx(tx))
	}
	var err error
	switch r.IntN(15) {
	case 0:
		err = s.c.Cancel(s.ctx, id, change...)
	case 1:
		err = admin.New(s.c).Runs.Terminate(s.ctx, id, change...)
	case 2, 3:
		err = admin.New(s.c).Runs.Resume(s.ctx, id, change...)
	case 4:
		_, err = admin.New(s.c).Runs.Restart(s.ctx, id, restart...)
	case 5:
		_, err = admin.New(s.c).Runs.Fork(s.ctx, id, []string{"first", "tx", "last"}[r.IntN(3)], restart...)
	case 6, 7:
		err = s.c.Signal(s.ctx, id, calm.With(n), change...)
	case 8:
		err = admin.New(s.c).Runs.Delete(s.ctx, id, change...)
	case 9, 10:
		err = admin.New(s.c).Runs.Update(s.ctx, id, update...)
	case 11:
		_, err = kagzi.Start(s.ctx, s.c, stormed, n, append(begin, []kagzi.StartOption{
			kagzi.ReplaceActive,
			kagzi.RejectActive, kagzi.RejectEnded, kagzi.StartIfFailed,
		}[r.IntN(4)])...)
	default:
		_, err = kagzi.Start(s.ctx, s.c, stormed, n, begin...)
	}
	for _, expected := range []error{
		kagzi.ErrNotFound, kagzi.ErrRunFinished, kagzi.ErrRunActive, kagzi.ErrIDConflict,
		kagzi.ErrIDTaken, admin.ErrCompensated, admin.ErrNotWaiting, admin.ErrRunNeeded,
	} {
		if errors.Is(err, expected) {
			s.refused.Add(1)
			err = nil
		}
	}
	if err != nil || tx == nil {
		return err
	}
	if r.IntN(3) == 0 {
		return tx.Rollback(s.ctx)
	}
	return tx.Commit(s.ctx)
}

// Under any combination of concurrent verbs and at every default isolation level, no recorded step is executed again,
// effects exist once, and all runs end. STORM=5000 sets the number of verbs of each sender.
func TestRandomVerbs(t *testing.T) {
	t.Parallel()
	most := campaign.Size(25, 100)
	if n, err := strconv.Atoi(os.Getenv("STORM")); err == nil {
		most = n
	}
	for _, level := range []string{"read committed", "repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			kit.WaitTurn(t)
			db := dbtest.Database(t)
			pool := dbtest.OpenPool(t, db.DSN, dbtest.Setting("default_transaction_isolation", level), dbtest.Conns(20))
			dbtest.Exec(t, pool, `CREATE TABLE public.effects (run_id uuid PRIMARY KEY)`)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute+time.Duration(most)*500*time.Millisecond)
			defer cancel()
			s := &storm{t: t, ctx: ctx, pool: pool, c: kit.NewClient(t, pool)}
			for range 3 {
				kit.StartWorker(t, s.worker())
			}
			var senders sync.WaitGroup
			for i := range 6 {
				senders.Go(func() {
					r := rand.New(rand.NewPCG(uint64(i), 9))
					for range most {
						if err := s.verb(r); err != nil {
							t.Errorf("sender %d: %v", i, err)
							return
						}
						s.done.Add(1)
					}
				})
			}
			senders.Wait()
			await.True(t, "all runs end", func() bool {
				return dbtest.QueryOne[int](t, pool, `SELECT count(*) FROM kagzi.workflow_runs
					WHERE status IN ('PENDING', 'RUNNING', 'SLEEPING')`) == 0
			})
			if done, refused := s.done.Load(), s.refused.Load(); refused == 0 || refused > done*9/10 {
				t.Errorf("INVALID: %d of %d verbs did not apply", refused, done)
			}
			if n := dbtest.QueryOne[int](t, pool, `SELECT count(*) FROM kagzi.step_runs s WHERE step_id = 'tx'
				AND status = 'COMPLETED'
				AND NOT EXISTS (SELECT FROM public.effects e WHERE e.run_id = s.run_id)
				AND NOT EXISTS (SELECT FROM kagzi.workflow_runs r WHERE r.run_id = s.run_id
					AND r.origin_run_id IS NOT NULL)`); n > 0 {
				t.Errorf("%d transactional steps without their effect", n)
			}
		})
	}
}

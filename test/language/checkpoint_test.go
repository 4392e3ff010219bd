package language_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/kind"
)

// A seen has the checkpoints with which the attempts of a step have begun.
type seen struct {
	mu   sync.Mutex
	made []int
}

// begin returns the attempt's last checkpoint.
func (s *seen) begin(ctx context.Context) (int, error) {
	at, err := kagzi.LastCheckpoint[int](ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made = append(s.made, at)
	return at, err
}

func (s *seen) want(t *testing.T, want ...int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.made, want) {
		t.Errorf("the attempts began at %v, want %v", s.made, want)
	}
}

// kept returns the checkpoint of the step in the table; zero: it has none.
func kept(k *kit.Kit, step string) int {
	return k.Count(`SELECT coalesce(max(convert_from(output, 'UTF8')::int), 0) FROM kagzi.step_runs
		WHERE step_id = $1`, step)
}

var imports = kagzi.Define[int, int]("imports", kit.NoRetry)

// step returns a workflow that executes fn as its step "import".
func step(fn func(context.Context) error, opts ...kagzi.StepOption) func(kagzi.Context, int) (int, error) {
	return func(ctx kagzi.Context, _ int) (int, error) { return 0, kagzi.Do(ctx, "import", fn, opts...) }
}

func TestCheckpointAfterAFailure(t *testing.T) {
	k := kit.New(t)
	var s, other seen
	kit.Serve(k, imports, func(ctx kagzi.Context, _ int) (int, error) {
		if _, err := step(func(ctx context.Context) error {
			switch at, err := s.begin(ctx); {
			case err != nil:
				return err
			case at < 4:
				err := errors.Join(kagzi.Checkpoint(ctx, at+1), kagzi.Checkpoint(ctx, at+2))
				if now, lastErr := kagzi.LastCheckpoint[int](ctx); now != at+2 {
					t.Errorf("it is %d (%v) after %d", now, lastErr, at+2)
				}
				return errors.Join(errors.New("broken"), err)
			}
			return nil
		}, kit.Soon)(ctx, 0); err != nil {
			return 0, err
		}
		return 0, kagzi.Do(ctx, "other", func(ctx context.Context) error { return kit.Second(other.begin(ctx)) })
	})
	run := kit.Begin(k, imports, 1)
	kit.ResultOf(k, run)
	s.want(t, 0, 2, 4)
	other.want(t, 0)
	if got := kept(k, "#checkpoint:import"); got != 0 {
		t.Errorf("the success of the step has left %d", got)
	}
	if steps := k.Steps(run); steps["#checkpoint:import"] != nil || len(steps["import"]) != 3 {
		t.Errorf("its steps are %+v", steps)
	}
}

// A step that succeeds soon writes no checkpoint.
func TestCheckpointOfAShortStep(t *testing.T) {
	k := kit.New(t)
	kit.Serve(k, imports, step(func(ctx context.Context) error { return kagzi.Checkpoint(ctx, 1) }))
	kit.ResultOf(k, kit.Begin(k, imports, 1))
	if n := k.Count(`SELECT count(*) FROM kagzi.step_runs`); n != 1 {
		t.Errorf("there are %d records, want 1", n)
	}
}

// A drain writes the checkpoint, and uses up no attempt.
func TestCheckpointAfterADrain(t *testing.T) {
	k := kit.New(t)
	var s seen
	begun := make(chan bool, 1)
	fn := step(func(ctx context.Context) error {
		at, err := s.begin(ctx)
		if err != nil || at > 0 {
			if n := kagzi.CurrentStep(ctx).Attempt; n != 1 {
				t.Errorf("attempt %d", n)
			}
			return err
		}
		begun <- true
		<-ctx.Done()
		return errors.Join(kagzi.Checkpoint(ctx, 7), ctx.Err())
	}, kagzi.RetryPolicy{MaxAttempts: 1})
	cfg := kit.NotifiedOnly
	cfg.DrainTimeout = time.Millisecond
	_, stop := kit.ServeWith(k, cfg, imports, fn)
	run := kit.Begin(k, imports, 1)
	await.Receive(t, begun)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if got := kept(k, "#checkpoint:import"); got != 7 {
		t.Errorf("the drain has written %d, want 7", got)
	}
	kit.ServeWith(k, cfg, imports, fn)
	kit.ResultOf(k, run)
	s.want(t, 0, 7)
}

// The next worker goes on from what the lost one has written, which writes no more.
func TestCheckpointOfALostWorker(t *testing.T) {
	k := kit.New(t)
	var s seen
	release := make(chan bool)
	fn := step(func(ctx context.Context) error {
		at, err := s.begin(ctx)
		if err != nil || at > 0 {
			return errors.Join(err, kagzi.Checkpoint(ctx, at+1), kagzi.Permanent(errors.New("broken")))
		}
		_ = kagzi.Checkpoint(ctx, 3)
		await.Receive(t, release)
		return kagzi.Checkpoint(ctx, 99)
	})
	_, stop := kit.ServeWith(k, kit.Unmonitored, imports, fn)
	run := kit.Begin(k, imports, 1)
	await.True(t, "the checkpoint is written", func() bool { return kept(k, "#checkpoint:import") == 3 })
	k.TakeAway(run.ID())
	release <- true
	_ = stop()
	if got := kept(k, "#checkpoint:import"); got != 3 {
		t.Errorf("the lost worker has written %d", got)
	}
	kit.Rescue(k, imports, fn)
	kit.FailureOf(k, run, kagzi.StatusFailed)
	s.want(t, 0, 3)
	if got := kept(k, "#checkpoint:import"); got != 4 {
		t.Errorf("the checkpoint is %d, want 4", got)
	}
}

// A Resume goes on from the checkpoint of the failed step. A fork begins anew, and so does the next epoch of the run.
func TestCheckpointOfAFailedStep(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T, more func(kagzi.Context) error) (*kit.Kit, *kagzi.Run[int], *seen) {
		k := kit.New(t)
		s := &seen{}
		fn := step(func(ctx context.Context) error {
			at, err := s.begin(ctx)
			return errors.Join(err, kagzi.Checkpoint(ctx, at+5), kagzi.Permanent(errors.New("broken")))
		})
		kit.Serve(k, imports, func(ctx kagzi.Context, n int) (int, error) {
			_, err := fn(ctx, n)
			if more != nil && n == 1 {
				return 0, more(ctx)
			}
			return 0, err
		})
		run := kit.Begin(k, imports, 1)
		kit.FailureOf(k, run, kagzi.StatusFailed)
		return k, run, s
	}
	t.Run("Resume", func(t *testing.T) {
		k, run, s := begin(t, nil)
		k.Resume(run)
		kit.FailureOf(k, run, kagzi.StatusFailed)
		s.want(t, 0, 5)
		if got := k.Steps(run)["#checkpoint:import"]; len(got) != 1 || string(got[0].Output) != "10" {
			t.Errorf("the checkpoint is shown as %+v", got)
		}
	})
	t.Run("Fork", func(t *testing.T) {
		k, run, s := begin(t, nil)
		fork, err := admin.New(k.Client).Runs.Fork(k.Ctx, run, "import")
		if err != nil {
			t.Fatal(err)
		}
		kit.FailureOf(k, kit.Find(t, k.Client, imports, fork), kagzi.StatusFailed)
		s.want(t, 0, 0)
	})
	t.Run("Continue", func(t *testing.T) {
		_, _, s := begin(t, func(ctx kagzi.Context) error { return kagzi.Continue(ctx, 2) })
		s.want(t, 0, 0)
	})
}

// A step in a Race writes its checkpoint before the race is decided.
func TestCheckpointOfARacer(t *testing.T) {
	k := kit.New(t)
	kit.Serve(k, imports, func(ctx kagzi.Context, _ int) (int, error) {
		_, _, err := kagzi.Race(ctx, "race", map[string]func(kagzi.Context) (int, error){
			"a": func(ctx kagzi.Context) (int, error) {
				return step(func(ctx context.Context) error {
					_ = kagzi.Checkpoint(ctx, 1)
					<-ctx.Done()
					return kagzi.Checkpoint(ctx, 2)
				})(ctx, 0)
			},
			"b": func(ctx kagzi.Context) (int, error) {
				return 0, kit.Second(kagzi.WaitSignal(ctx, kit.Approved))
			},
		})
		return 0, err
	})
	run := kit.Begin(k, imports, 1)
	await.True(t, "the checkpoint is written", func() bool { return kept(k, "race/a/#checkpoint:import") == 1 })
	k.Signal(run, kit.Approved.With("yes"))
	kit.ResultOf(k, run)
}

func TestWrongCheckpoints(t *testing.T) {
	k := kit.NewWith(t, kagzi.ClientConfig{MaxPayload: 100})
	for what, err := range map[string]error{
		"Checkpoint":     kagzi.Checkpoint(k.Ctx, 1),
		"LastCheckpoint": kit.Second(kagzi.LastCheckpoint[int](k.Ctx)),
	} {
		if kagzi.KindOf(err) != kind.BadRequest || !strings.Contains(err.Error(), "ctx belongs to no step") {
			t.Errorf("%s outside of a step: %v", what, err)
		}
	}
	var left context.Context
	kit.Serve(k, imports, func(ctx kagzi.Context, _ int) (int, error) {
		if _, err := step(func(ctx context.Context) error {
			left = ctx
			err := kagzi.Checkpoint(ctx, strings.Repeat("x", 101))
			if !errors.Is(err, kagzi.ErrPayloadTooLarge) || kagzi.KindOf(err) != kind.Validation {
				t.Errorf("a large one: %v", err)
			}
			if err := kagzi.Checkpoint(ctx, func() {}); kagzi.KindOf(err) != kind.Validation {
				t.Errorf("a function: %v", err)
			}
			if err := kagzi.Checkpoint(ctx, "three"); err != nil {
				t.Error(err)
			}
			_, err = kagzi.LastCheckpoint[int](ctx)
			if kagzi.KindOf(err) != kind.Validation || !strings.Contains(err.Error(), "does not decode into int") {
				t.Errorf("another type: %v", err)
			}
			return nil
		})(ctx, 0); err != nil {
			return 0, err
		}
		for what, err := range map[string]error{
			"Checkpoint":     kagzi.Checkpoint(left, 1),
			"LastCheckpoint": kit.Second(kagzi.LastCheckpoint[int](left)),
		} {
			if kagzi.KindOf(err) != kind.BadRequest || !strings.Contains(err.Error(), "is over") {
				t.Errorf("%s after the attempt: %v", what, err)
			}
		}
		return 0, nil
	})
	kit.ResultOf(k, kit.Begin(k, imports, 1))
}

// importTx returns a workflow that writes the lines 1 to 6, each with a checkpoint. after is called after each line.
func importTx(s *seen, after func(ctx context.Context, tx pgx.Tx, line int) error,
	opts ...kagzi.StepOption,
) func(kagzi.Context, int) (int, error) {
	return func(ctx kagzi.Context, _ int) (int, error) {
		return 0, kagzi.DoTx(ctx, "import", func(ctx context.Context, tx pgx.Tx) error {
			at, err := s.begin(ctx)
			for ; at < 6 && err == nil; at++ {
				if _, err = tx.Exec(ctx, `INSERT INTO public.lines VALUES ($1)`, at+1); err == nil {
					err = after(ctx, tx, at+1)
				}
				if err == nil {
					err = kagzi.Checkpoint(ctx, at+1)
				}
			}
			return err
		}, opts...)
	}
}

// wantLines checks that each line was written once.
func wantLines(k *kit.Kit) {
	k.T.Helper()
	rows, _ := k.Pool.Query(k.Ctx, `SELECT n FROM public.lines ORDER BY n`)
	got, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil || !slices.Equal(got, []int{1, 2, 3, 4, 5, 6}) {
		k.T.Errorf("the lines are %v (%v)", got, err)
	}
	if n := kept(k, "#checkpoint:import"); n != 0 {
		k.T.Errorf("the success of the step has left %d", n)
	}
}

// The rows that the function has written and the checkpoint are committed together, or not at all.
func TestCheckpointInATransaction(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fails func(ctx context.Context, k *kit.Kit, tx pgx.Tx) error
		made  []int
	}{
		"Error": {
			func(context.Context, *kit.Kit, pgx.Tx) error { return errors.New("broken") },
			[]int{0, 3},
		},
		"Connection": {func(_ context.Context, k *kit.Kit, tx pgx.Tx) error {
			endBackend(k, tx)
			return nil
		}, []int{0, 3}},
		"DroppedError": {func(ctx context.Context, _ *kit.Kit, tx pgx.Tx) error {
			_, _ = tx.Exec(ctx, `SELECT 1/0`)
			return nil
		}, []int{0, 3}},
		"Commit": {func(ctx context.Context, _ *kit.Kit, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `INSERT INTO public.lines VALUES (100)`) // refused by the commit
			return err
		}, []int{0, 3}},
		"Rollback": {func(ctx context.Context, _ *kit.Kit, tx pgx.Tx) error {
			_ = tx.Rollback(ctx)
			return errors.New("broken")
		}, []int{0, 3}},
		"Isolation": {func(context.Context, *kit.Kit, pgx.Tx) error { return errors.New("broken") }, []int{0, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			k.Exec(`CREATE TABLE public.lines (n int UNIQUE)`)
			k.Exec(`CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql
				AS $$ BEGIN RAISE 'not now' USING ERRCODE = '40001'; END $$`)
			k.Exec(`CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON public.lines DEFERRABLE INITIALLY DEFERRED
				FOR EACH ROW WHEN (NEW.n = 100) EXECUTE FUNCTION public.refuse()`)
			var s seen
			failed := false
			after := func(ctx context.Context, tx pgx.Tx, line int) error {
				if line == 4 && !failed {
					failed = true
					return tt.fails(ctx, k, tx)
				}
				return nil
			}
			opts := []kagzi.StepOption{kit.Soon}
			if name == "Isolation" {
				opts = append(opts, kagzi.Isolation(pgx.Serializable))
			}
			kit.Serve(k, imports, importTx(&s, after, opts...))
			kit.ResultOf(k, kit.Begin(k, imports, 1))
			s.want(t, tt.made...)
			wantLines(k)
		})
	}
}

// The answer to the commit of a checkpoint is lost, or the request: the next attempt goes on from what the table has.
func TestLostCheckpointInATransaction(t *testing.T) {
	kit.EachLoss(t, func(t *testing.T, l *kit.Lossy) {
		k := &kit.Kit{T: t, Ctx: kit.Context(t), Pool: l.Db.Pool, Client: l.Client(t, 8)}
		k.Exec(`CREATE TABLE public.lines (n int UNIQUE)`)
		var s seen
		var drop *pgproxy.Drop
		kit.Serve(k, imports, importTx(&s, func(_ context.Context, _ pgx.Tx, line int) error {
			if line == 4 && drop == nil {
				drop = l.Lose(pgproxy.After(pgproxy.Contains("kagzi_steptx.begun', true"), pgproxy.Exactly("commit")))
			}
			return nil
		}, kagzi.RetryPolicy{MaxAttempts: 1}))
		kit.ResultOf(k, kit.Begin(k, imports, 1))
		if l.Requests {
			s.want(t, 0, 3)
		} else {
			s.want(t, 0, 4)
		}
		wantLines(k)
	})
}

// A worker that has lost its run commits no line and no checkpoint.
func TestCheckpointInATransactionOfALostWorker(t *testing.T) {
	k := kit.New(t)
	k.Exec(`CREATE TABLE public.lines (n int UNIQUE)`)
	var s seen
	var run *kagzi.Run[int]
	started, taken := make(chan bool), false
	fn := importTx(&s, func(_ context.Context, _ pgx.Tx, line int) error {
		if line == 4 && !taken {
			taken = true
			await.Receive(t, started)
			k.TakeAway(run.ID())
		}
		return nil
	})
	_, stop := kit.ServeWith(k, kit.Unmonitored, imports, fn)
	run = kit.Begin(k, imports, 1)
	started <- true
	await.True(t, "the worker has lost the run", func() bool {
		return k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE task_queue = 'rescue'`) == 1
	})
	_ = stop()
	kit.Rescue(k, imports, fn)
	kit.ResultOf(k, run)
	s.want(t, 0, 3)
	wantLines(k)
}

// A checkpoint in a savepoint, or between the rows of a query, would commit a part of that: it is refused, and nothing
// has happened.
func TestCheckpointInTheMiddle(t *testing.T) {
	k := kit.New(t)
	k.Exec(`CREATE TABLE public.lines (n int UNIQUE)`)
	kit.Serve(k, imports, func(ctx kagzi.Context, _ int) (int, error) {
		return 0, kagzi.DoTx(ctx, "import", func(ctx context.Context, tx pgx.Tx) error {
			insert := func(tx pgx.Tx, n int) error {
				_, err := tx.Exec(ctx, `INSERT INTO public.lines VALUES ($1)`, n)
				return err
			}
			refused := func(says string) {
				err := kagzi.Checkpoint(ctx, 1)
				if kagzi.KindOf(err) != kind.BadRequest || !strings.Contains(err.Error(), says) {
					t.Errorf("got %v, want one with %q", err, says)
				}
			}
			undone := errors.New("undone")
			if err := pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error {
				refused("a savepoint of the transaction is open")
				return errors.Join(undone, insert(inner, 100))
			}); !errors.Is(err, undone) {
				return err
			}
			rows, err := tx.Query(ctx, `SELECT generate_series(1, 1000)`)
			if err != nil {
				return err
			}
			refused("not all read")
			rows.Close()
			for n := 1; n <= 6 && err == nil; n++ {
				err = pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error { return insert(inner, n) })
				if err == nil {
					err = kagzi.Checkpoint(ctx, n)
				}
			}
			return err
		})
	})
	kit.ResultOf(k, kit.Begin(k, imports, 1))
	wantLines(k)
}

// A repeatable step that succeeds soon writes no checkpoint, and a later success forgets the one that was written.
func TestCheckpointOfARepeatableStep(t *testing.T) {
	k := kit.New(t)
	var s seen
	kit.Serve(k, imports, step(func(ctx context.Context) error {
		at, err := s.begin(ctx)
		if at == 0 && err == nil {
			return errors.Join(kagzi.Checkpoint(ctx, 1), errors.New("broken"))
		}
		return err
	}, kagzi.Repeatable(), kit.Soon))
	kit.ResultOf(k, kit.Begin(k, imports, 1))
	s.want(t, 0, 1)
	if got := kept(k, "#checkpoint:import"); got != 0 {
		t.Errorf("the success of the step has left %d", got)
	}
	short := kagzi.Define[int, int]("short")
	kit.Serve(k, short, step(func(ctx context.Context) error { return kagzi.Checkpoint(ctx, 1) }, kagzi.Repeatable()))
	run := kit.Begin(k, short, 1)
	kit.ResultOf(k, run)
	if n := k.Count(`SELECT count(*) FROM kagzi.step_runs WHERE run_id = $1`, string(run.ID())); n != 1 {
		t.Errorf("there are %d records, want 1", n)
	}
}

// A call of the function that was made again under the same number is over, too.
func TestCheckpointOfACallThatIsOver(t *testing.T) {
	k := kit.New(t)
	setLimit(k, admin.StepLimit{Name: "api", HonorRetryAfter: true})
	var left context.Context
	kit.Serve(k, imports, step(func(ctx context.Context) error {
		if left == nil {
			left = ctx
			return kagzi.RetryAfter(errors.New("slow"), time.Millisecond)
		}
		if err := kagzi.Checkpoint(left, 77); kagzi.KindOf(err) != kind.BadRequest {
			t.Errorf("got %v", err)
		}
		return nil
	}, kagzi.Limit("api")))
	kit.ResultOf(k, kit.Begin(k, imports, 1))
}

// A ctx of the function's own that has ended, and a race that is lost.
func TestCheckpointInATransactionThatEnds(t *testing.T) {
	t.Run("Context", func(t *testing.T) {
		k := kit.New(t)
		k.Exec(`CREATE TABLE public.lines (n int UNIQUE)`)
		kit.Serve(k, imports, func(ctx kagzi.Context, _ int) (int, error) {
			return 0, kagzi.DoTx(ctx, "import", func(ctx context.Context, tx pgx.Tx) error {
				for n := 1; n <= 6; n++ {
					if _, err := tx.Exec(ctx, `INSERT INTO public.lines VALUES ($1)`, n); err != nil {
						return err
					}
					late, cancel := context.WithTimeout(ctx, -time.Second)
					defer cancel()
					if err := kagzi.Checkpoint(late, n); err != nil {
						return err
					}
				}
				return nil
			})
		})
		kit.ResultOf(k, kit.Begin(k, imports, 1))
		wantLines(k)
	})
	t.Run("Race", func(t *testing.T) {
		k := kit.New(t)
		k.Exec(`CREATE TABLE public.lines (n int)`)
		begun, ended := make(chan bool, 1), make(chan error, 1)
		kit.Serve(k, imports, func(ctx kagzi.Context, _ int) (int, error) {
			_, _, err := kagzi.Race(ctx, "race", map[string]func(kagzi.Context) (int, error){
				"a": func(ctx kagzi.Context) (int, error) {
					return 0, kagzi.DoTx(ctx, "import", func(ctx context.Context, tx pgx.Tx) error {
						begun <- true
						<-ctx.Done()
						own := context.WithoutCancel(ctx)
						_, err := tx.Exec(own, `INSERT INTO public.lines VALUES (1)`)
						if err == nil {
							err = kagzi.Checkpoint(own, 1)
						}
						ended <- err
						return err
					})
				},
				"b": func(ctx kagzi.Context) (int, error) {
					return 0, kit.Second(kagzi.WaitSignal(ctx, kit.Approved))
				},
			})
			return 0, err
		})
		run := kit.Begin(k, imports, 1)
		await.Receive(t, begun)
		k.Signal(run, kit.Approved.With("b"))
		kit.ResultOf(k, run)
		if err := await.Receive(t, ended); err == nil {
			t.Error("a loser has kept a checkpoint")
		}
		if n := k.Count(`SELECT count(*) FROM public.lines`); n != 0 {
			t.Errorf("a loser has written %d lines", n)
		}
	})
}

package language_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

// reading is a workflow that reads n messages of each signal, one after the other.
func reading(n int, signals ...kagzi.Signal[string]) func(kagzi.Context, struct{}) (string, error) {
	return func(ctx kagzi.Context, _ struct{}) (string, error) {
		var got []string
		for range n {
			for _, s := range signals {
				v, err := kagzi.WaitSignal(ctx, s)
				if err != nil {
					return "", err
				}
				got = append(got, v)
			}
		}
		return strings.Join(got, " "), nil
	}
}

const unread = `SELECT count(*) FROM kagzi.signals WHERE consumed_by IS NULL`

func TestSignal(t *testing.T) {
	t.Parallel()
	t.Run("BeforeTheFirstClaim", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[struct{}, string]("wf")
		run := kit.Begin(k, wf, struct{}{})
		for _, v := range []string{"a", "b", "c"} {
			k.Signal(run.ID(), kit.Approved.With(v))
		}
		kit.Serve(k, wf, reading(3, kit.Approved))
		if got := kit.ResultOf(k, run); got != "a b c" {
			t.Errorf("got %q", got)
		}
		steps := k.Steps(run.ID())
		if len(steps) != 3 || len(steps["approved#3"]) != 1 || string(steps["approved#2"][0].Output) != `"b"` {
			t.Errorf("steps %v", steps)
		}
		if n := k.Count(unread); n != 0 {
			t.Errorf("%d messages are unread", n)
		}
	})
	t.Run("WhileSuspended", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[struct{}, string]("wf")
		kit.ServeWith(k, kit.NotifiedOnly, wf, reading(2, kit.Approved.For("call-7")))
		run := kit.Begin(k, wf, struct{}{}, kagzi.ID("mine"))
		for i, v := range []string{"a", "b"} {
			info := k.WaitStatus(run.ID(), kagzi.StatusSleeping)
			if info.WaitingOn.String() != "signal approved/call-7" || !info.AvailableAt.IsZero() {
				t.Errorf("waits on %q until %v", info.WaitingOn, info.AvailableAt)
			}
			k.Signal([]kagzi.Ref{run.ID(), kagzi.ID("mine")}[i], kit.Approved.For("call-7").With(v))
			await.True(t, "the message is read", func() bool { return k.Count(unread) == 0 })
		}
		if got := kit.ResultOf(k, run); got != "a b" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("ByNameAndKey", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[struct{}, string]("wf")
		run := kit.Begin(k, wf, struct{}{})
		k.Signal(run.ID(), kit.Approved.With("none"))
		k.Signal(run.ID(), kit.Approved.For("a/b#%").With("odd"))
		k.Signal(run.ID(), kit.Approved.For("a").With("a1"))
		k.Signal(run.ID(), kit.Approved.For("b").With("b1"))
		k.Signal(run.ID(), kit.Approved.For("a").With("a2"))
		kit.Serve(k, wf, reading(1, kit.Approved.For("b"), kit.Approved.For("a"), kit.Approved.For("a"), kit.Approved,
			kit.Approved.For("a").For("b#%")))
		if got := kit.ResultOf(k, run); got != "b1 a1 a2 none odd" {
			t.Errorf("got %q", got)
		}
		if steps := k.Steps(run.ID()); len(steps["approved:a#2"]) != 1 || len(steps["approved:a%2Fb%23%25"]) != 1 ||
			len(steps["approved"]) != 1 {
			t.Errorf("steps %v", steps)
		}
	})
	t.Run("ToNobodyWhoWaits", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[struct{}, string]("wf")
		kit.Serve(k, wf, reading(0))
		run := kit.Begin(k, wf, struct{}{}, kagzi.ID("x"))
		kit.ResultOf(k, run)
		for _, ref := range []kagzi.Ref{run.ID(), kagzi.ID("x")} {
			if err := k.Client.Signal(k.Ctx, ref, kit.Approved.With("")); !errors.Is(err, kagzi.ErrRunFinished) {
				t.Errorf("of a run that is over: %v", err)
			}
		}
		for _, ref := range []kagzi.Ref{
			kagzi.RunID("00000000-0000-7000-8000-000000000000"), kagzi.RunID("nonsense"),
			kagzi.ID("y"),
		} {
			if err := k.Client.Signal(k.Ctx, ref, kit.Approved.With("")); !errors.Is(err, kagzi.ErrNotFound) {
				t.Errorf("of no run: %v", err)
			}
		}
		if n := k.Count(unread); n != 0 {
			t.Errorf("%d messages were stored", n)
		}
	})
	t.Run("NamespacesAreApart", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[struct{}, string]("wf")
		other := kit.NewClientWith(t, k.Pool, kagzi.ClientConfig{Namespace: "other"})
		run := kit.Begin(k, wf, struct{}{}, kagzi.ID("x"))
		for _, ref := range []kagzi.Ref{run.ID(), kagzi.ID("x")} {
			if err := other.Signal(k.Ctx, ref, kit.Approved.With("")); !errors.Is(err, kagzi.ErrNotFound) {
				t.Errorf("from another namespace: %v", err)
			}
		}
		theirs, err := kagzi.Start(k.Ctx, other, wf, struct{}{}, kagzi.ID("x"))
		if err != nil {
			t.Fatal(err)
		}
		k.Signal(kagzi.ID("x"), kit.Approved.With("ours").WithID("m"))
		if err := other.Signal(k.Ctx, kagzi.ID("x"), kit.Approved.With("theirs").WithID("m")); err != nil {
			t.Fatal(err)
		}
		for _, c := range []*kagzi.Client{k.Client, other} {
			w := kit.NewWorker(t, c, kagzi.WorkerConfig{})
			kagzi.Handle(w, wf, reading(1, kit.Approved))
			kit.StartWorker(t, w)
		}
		if a, b := kit.ResultOf(k, run), kit.ResultOf(k, theirs); a != "ours" || b != "theirs" {
			t.Errorf("got %q and %q", a, b)
		}
	})
}

func TestSignalIsIdempotentByID(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[struct{}, string]("wf")
	run := kit.Begin(k, wf, struct{}{}, kagzi.ID("x"))
	for range 3 {
		k.Signal(run.ID(), kit.Approved.With("a").WithID("m"))
	}
	k.Signal(run.ID(), kit.Rejected.With("of another name").WithID("m"))
	k.Signal(run.ID(), kit.Approved.With("b").WithID("m2"))
	if n := k.Count(`SELECT wakeups FROM kagzi.workflow_runs`); n != 2 {
		t.Errorf("%d wakeups, want 2", n)
	}
	kit.Serve(k, wf, reading(2, kit.Approved))
	if got := kit.ResultOf(k, run); got != "a b" {
		t.Errorf("got %q", got)
	}
	// A sender that repeats a message because the answer was lost must not get the error of a late message.
	k.Signal(run.ID(), kit.Approved.With("a").WithID("m"))
	k.Signal(kagzi.ID("x"), kit.Approved.With("a").WithID("m"))
	if err := k.Client.Signal(k.Ctx, run.ID(), kit.Approved.With("a").WithID("m3")); !errors.Is(err,
		kagzi.ErrRunFinished) {
		t.Errorf("another message: %v", err)
	}
}

func TestSignalInTx(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[struct{}, string]("wf")
	kit.ServeWith(k, kit.NotifiedOnly, wf, reading(2, kit.Approved))
	run := kit.Begin(k, wf, struct{}{}, kagzi.ID("x"))
	k.WaitStatus(run.ID(), kagzi.StatusSleeping)
	inTx := func(f func(tx pgx.Tx)) pgx.Tx {
		tx := k.CallersTx()
		f(tx)
		return tx
	}
	taken := inTx(func(tx pgx.Tx) { k.Signal(run.ID(), kit.Approved.With("taken back"), kagzi.InTx(tx)) })
	kit.RollbackTx(t, taken)
	kept := inTx(func(tx pgx.Tx) {
		k.Signal(run.ID(), kit.Approved.With("a").WithID("m"), kagzi.InTx(tx))
		k.Signal(run.ID(), kit.Approved.With("a").WithID("m"), kagzi.InTx(tx))
		if err := k.Client.Signal(k.Ctx, kagzi.ID("y"), kit.Approved.With(""), kagzi.InTx(tx)); !errors.Is(err,
			kagzi.ErrNotFound) {
			t.Errorf("of no run: %v", err)
		}
		k.Signal(kagzi.ID("x"), kit.Approved.With("b"), kagzi.InTx(tx))
	})
	if n := k.Count(`SELECT count(*) FROM kagzi.signals`); n != 0 {
		t.Errorf("%d messages are visible before the commit", n)
	}
	kit.CommitTx(t, kept)
	if got := kit.ResultOf(k, run); got != "a b" {
		t.Errorf("got %q", got)
	}
	over := inTx(func(tx pgx.Tx) {
		if err := k.Client.Signal(k.Ctx, run.ID(), kit.Approved.With(""), kagzi.InTx(tx)); !errors.Is(err,
			kagzi.ErrRunFinished) {
			t.Errorf("of a run that is over: %v", err)
		}
		k.Signal(run.ID(), kit.Approved.With("a").WithID("m"), kagzi.InTx(tx))
	})
	if err := over.Commit(k.Ctx); err != nil {
		t.Errorf("the transaction was broken: %v", err)
	}
}

// A run becomes due while a caller's transaction has locked it. It is claimed when that commits, although no worker
// polls.
func TestSignalInALongTransaction(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[struct{}, string]("wf")
	run := kit.Begin(k, wf, struct{}{})
	tx := k.CallersTx()
	k.Signal(run.ID(), kit.Approved.With("a"), kagzi.InTx(tx))
	kit.ServeWith(k, kit.NotifiedOnly, wf, reading(1, kit.Approved))
	other := kit.Begin(k, wf, struct{}{}) // the worker claims, and passes over the locked row
	k.WaitStatus(other.ID(), kagzi.StatusSleeping)
	kit.CommitTx(t, tx)
	if got := kit.ResultOf(k, run); got != "a" {
		t.Errorf("got %q", got)
	}
}

func TestBadSignals(t *testing.T) {
	k := kit.New(t)
	c := kit.NewClientWith(t, k.Pool, kagzi.ClientConfig{MaxPayload: 100})
	k.Client = c
	wf := kagzi.Define[struct{}, string]("wf", kit.NoRetry)
	run := kit.Begin(k, wf, struct{}{})
	long := strings.Repeat("x", 250)
	for _, bad := range []struct {
		m    kagzi.Message
		opts []kagzi.ChangeOption
		says string
	}{
		{kagzi.Message{}, nil, "the Message is empty: make one with Signal.With"},
		{kagzi.DefineSignal[int]("").With(1), nil, "the signal's name is empty"},
		{kit.Approved.With("").WithID(""), nil, "message's ID is empty"},
		{kit.Approved.With("").WithID("a\n"), nil, "control character"},
		{kagzi.DefineSignal[int]("a/b").With(1), nil, "'/'"},
		{kagzi.DefineSignal[int]("a#2").With(1), nil, "'#'"},
		{kagzi.DefineSignal[int]("a\n").With(1), nil, "control character"},
		{kit.Approved.For("").With(""), nil, "key of signal \"approved\" is empty"},
		{kit.Approved.For("a\x00").With(""), nil, "control character"},
		{kit.Approved.For("a\xff").With(""), nil, "UTF-8"},
		{kit.Approved.For(long).With(""), nil, "at most 255"},
		{kagzi.DefineSignal[func()]("f").With(nil), nil, "func() cannot be encoded"},
		{kagzi.DefineSignal[float64]("f").With(math.NaN()), nil, "cannot be encoded"},
		{kit.Approved.With(long), nil, "252 bytes, the limit (ClientConfig.MaxPayload) is 100"},
		{kit.Approved.With(""), []kagzi.ChangeOption{kagzi.InTx(nil)}, "begin a transaction"},
		{kit.Approved.With(""), []kagzi.ChangeOption{nil}, "nil option"},
		{kit.Approved.With(""), []kagzi.ChangeOption{kagzi.Grace(time.Second)}, "Grace is for Cancel"},
		{kit.Approved.With(""), []kagzi.ChangeOption{admin.Forget("s")}, "Forget is for Resume"},
		{kit.Approved.With(""), []kagzi.ChangeOption{admin.DryRun()}, "DryRun is for the verbs that take a RunFilter"},
	} {
		err := k.Client.Signal(k.Ctx, run.ID(), bad.m, bad.opts...)
		kit.MustContain(t, err, bad.says)
		if bad.opts == nil {
			_, err = kagzi.Start(k.Ctx, k.Client, wf, struct{}{}, bad.m)
			kit.MustContain(t, err, bad.says)
		}
	}
	if err := k.Client.Signal(k.Ctx, run.ID(), kit.Approved.With(long)); !errors.Is(err, kagzi.ErrPayloadTooLarge) {
		t.Errorf("too large: %v", err)
	}
	kit.MustContain(t, k.Client.Signal(k.Ctx, nil, kit.Approved.With("")), "reference is nil")
	kit.MustContain(t, k.Client.Schedule(k.Ctx, kagzi.Schedule{
		Name: "s", Every: time.Hour,
		Run: wf.With(struct{}{}, kit.Approved.With("")),
	}), "Message")
	if n := k.Count(`SELECT count(*) FROM kagzi.signals`) +
		k.Count(`SELECT count(*) FROM kagzi.workflow_runs`); n != 1 {
		t.Errorf("%d rows, want the run's", n)
	}
	kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (string, error) {
		for _, try := range []func() (string, error){
			func() (string, error) { return kagzi.WaitSignal(ctx, kagzi.DefineSignal[string]("a/b")) },
			func() (string, error) { return kagzi.WaitSignal(ctx, kit.Approved.For("")) },
			func() (string, error) { return kagzi.WaitSignal(ctx, kit.Approved, kagzi.Timeout(30)) },
			func() (string, error) { return kagzi.WaitSignal(ctx, kit.Approved, kagzi.Timeout(0)) },
			func() (string, error) {
				return kagzi.WaitSignal(ctx, kit.Approved, kagzi.Timeout(time.Hour), kagzi.Timeout(time.Hour))
			},
			func() (string, error) { return kagzi.WaitSignal[string](nil, kit.Approved) },
		} {
			if _, err := try(); kagzi.KindOf(err) != kind.BadRequest {
				t.Errorf("got %v", err)
			}
		}
		return "", nil
	})
	if re := kit.FailureOf(k, run, kagzi.StatusFailed); re.Kind != kind.BadRequest {
		t.Errorf("got %v", re)
	}
}

// Further attempts of a step, and of its run, send no message twice. Two messages of one attempt are not taken for one.
func TestSignalFromAStep(t *testing.T) {
	k := kit.New(t)
	to, from := kagzi.Define[struct{}, string]("to"), kagzi.Define[string, int]("from", kit.Soon)
	target := kit.Begin(k, to, struct{}{}, kagzi.ID("target"))
	kit.Serve(k, from, func(ctx kagzi.Context, id string) (int, error) {
		return 1, kagzi.Do(ctx, "send", func(c context.Context) error {
			for _, err := range []error{
				k.Client.Signal(c, kagzi.RunID(id), kit.Approved.With("1")),
				k.Client.Signal(c, kagzi.RunID(id), kit.Approved.With("2")),
				k.Client.Signal(c, kagzi.ID("target"), kit.Approved.With("3")),
				k.Client.Signal(c, kagzi.RunID(id), kit.Rejected.With("4")),
				k.Client.Signal(c, kagzi.RunID(id), kit.Approved.With("5").WithID("mine")),
			} {
				if err != nil {
					return err
				}
			}
			if _, err := kagzi.Start(c, k.Client, to, struct{}{}, kagzi.ID("target"),
				kit.Approved.With("6")); err != nil {
				return err
			}
			if kagzi.CurrentStep(c).Attempt < 3 {
				return errors.New("again")
			}
			return nil
		}, kit.Soon)
	})
	kit.ResultOf(k, kit.Begin(k, from, string(target.ID())))
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(w, to, func(ctx kagzi.Context, _ struct{}) (string, error) {
		var got []string
		for {
			v, err := kagzi.WaitSignal(ctx, kit.Approved, kagzi.Timeout(time.Millisecond))
			if errors.Is(err, kind.Timeout) {
				return strings.Join(got, " "), nil
			}
			got = append(got, v)
		}
	})
	kit.StartWorker(t, w)
	if got := kit.ResultOf(k, target); got != "1 2 3 5 6" {
		t.Errorf("got %q", got)
	}
	if n := k.Count(`SELECT count(*) FROM kagzi.signals WHERE name = 'rejected'`); n != 1 {
		t.Errorf("%d messages of the other name", n)
	}
}

// Each attempt of a step sends other messages. The run gets the messages of all attempts, each once: a message is not
// taken for another because it has the same position.
func TestAStepThatIsTriedAgainSendsOtherMessages(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		attempts [][]string
		want     string
	}{
		"MoreThanBefore":      {[][]string{{"b"}, {"a", "b"}}, "b a"},
		"AnotherOrder":        {[][]string{{"a", "b"}, {"b", "a"}}, "a b"},
		"FewerThanBefore":     {[][]string{{"a", "b"}, {"b"}}, "a b"},
		"OthersThanBefore":    {[][]string{{"a"}, {"b"}, {"c", "a"}}, "a b c"},
		"EqualOnesAreCounted": {[][]string{{"a"}, {"a", "a"}, {"a", "a", "a"}}, "a a a"},
	} {
		for with, send := range map[string]func(context.Context, *kit.Kit, kagzi.Workflow[struct{}, string],
			string) error{
			"": func(ctx context.Context, k *kit.Kit, _ kagzi.Workflow[struct{}, string], text string) error {
				return k.Client.Signal(ctx, kagzi.ID("x"), kit.Approved.With(text))
			},
			"WithStart": func(ctx context.Context, k *kit.Kit, wf kagzi.Workflow[struct{}, string], text string) error {
				_, err := kagzi.Start(ctx, k.Client, wf, struct{}{}, kagzi.ID("x"), kit.Approved.With(text))
				return err
			},
		} {
			t.Run(name+with, func(t *testing.T) {
				k := newSealedKit(t) // the same payload is stored as other bytes each time
				receiver, sender := kagzi.Define[struct{}, string]("receiver"), kagzi.Define[struct{}, int]("sender")
				to := kit.Begin(k, receiver, struct{}{}, kagzi.ID("x"), kagzi.Queue("later"))
				kit.Serve(k, sender, func(ctx kagzi.Context, _ struct{}) (int, error) {
					return 0, kagzi.Do(ctx, "send", func(ctx context.Context) error {
						attempt := kagzi.CurrentStep(ctx).Attempt
						for _, text := range tt.attempts[attempt-1] {
							if err := send(ctx, k, receiver, text); err != nil {
								return kagzi.Permanent(err)
							}
						}
						if attempt < len(tt.attempts) {
							return kind.Network
						}
						return nil
					}, kit.Soon)
				})
				kit.ResultOf(k, kit.Begin(k, sender, struct{}{}))
				later := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{Queue: "later"})
				kagzi.Handle(later, receiver, reading(len(strings.Fields(tt.want)), kit.Approved))
				kit.StartWorker(t, later)
				if n := k.Count(`SELECT count(*) FROM kagzi.signals`); n != len(strings.Fields(tt.want)) {
					t.Errorf("%d messages", n)
				}
				if got := kit.ResultOf(k, to); got != tt.want {
					t.Errorf("got %q, want %q", got, tt.want)
				}
			})
		}
	}
}

// A step sends to an ID and fails. At its retry another run has the ID, and does not get the message that the first run
// got.
func TestSignalFromAStepToAnotherHolder(t *testing.T) {
	k := kit.New(t)
	to, from := kagzi.Define[struct{}, string]("to"), kagzi.Define[struct{}, int]("from")
	first := kit.Begin(k, to, struct{}{}, kagzi.ID("target"))
	var second *kagzi.Run[string]
	kit.Serve(k, from, func(ctx kagzi.Context, _ struct{}) (int, error) {
		return 1, kagzi.Do(ctx, "send", func(c context.Context) error {
			if err := k.Client.Signal(c, kagzi.ID("target"), kit.Approved.With("paid")); err != nil {
				return err
			}
			if kagzi.CurrentStep(c).Attempt > 1 {
				return nil
			}
			if err := first.Cancel(c); err != nil {
				return err
			}
			second = kit.Begin(k, to, struct{}{}, kagzi.ID("target"))
			return errors.New("again")
		}, kit.Soon)
	})
	kit.ResultOf(k, kit.Begin(k, from, struct{}{}))
	if n := k.Count(`SELECT count(*) FROM kagzi.signals WHERE run_id = $1`, string(second.ID())); n != 0 {
		t.Errorf("the run that has the ID now got %d messages, which were sent to another", n)
	}
	if n := k.Count(unread); n != 1 {
		t.Errorf("%d messages, want the one", n)
	}
}

// A message is stored for a run that is about to be compensated. Nothing fails.
func TestSignalOfARunBeingCancelled(t *testing.T) {
	k := kit.New(t)
	run := kit.Begin(k, kagzi.Define[struct{}, string]("wf"), struct{}{})
	k.Exec(`UPDATE kagzi.workflow_runs SET cancel_requested_at = now()`)
	k.Signal(run.ID(), kit.Approved.With("late"))
	if n := k.Count(unread); n != 1 {
		t.Errorf("%d messages, want 1", n)
	}
}

// TestThousandSignals sends 1,000 signals from 8 goroutines to 100 runs that are suspended and claimed all the while,
// by two workers. Each run reads its messages, in their order.
func TestThousandSignals(t *testing.T) {
	k := kit.New(t)
	dbtest.Audit(t, k.Pool)
	wf := kagzi.Define[struct{}, []string]("wf")
	const runs, each = 100, 5
	names := []kagzi.Signal[string]{kit.Approved, kit.Rejected.For("x")}
	read := func(ctx kagzi.Context, _ struct{}) ([]string, error) {
		var got []string
		for _, s := range names { // one after the other: the second's are kept meanwhile
			for range each {
				v, err := kagzi.WaitSignal(ctx, s)
				if err != nil {
					return nil, err
				}
				got = append(got, v)
			}
		}
		return got, nil
	}
	for range 2 {
		kit.ServeWith(k, kagzi.WorkerConfig{MaxConcurrent: 40}, wf, read)
	}
	started := make([]*kagzi.Run[[]string], runs)
	for i := range started {
		started[i] = kit.Begin(k, wf, struct{}{})
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range each { // each run's messages of a name come from one goroutine
				for r := g / 2; r < runs; r += 4 {
					if err := k.Client.Signal(k.Ctx, started[r].ID(), names[g%2].With(fmt.Sprint(g%2, i))); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	var want []string
	for s := range names {
		for i := range each {
			want = append(want, fmt.Sprint(s, i))
		}
	}
	for i, r := range started {
		if got := kit.ResultOf(k, r); !slices.Equal(got, want) {
			t.Errorf("run %d read %v, want %v", i, got, want)
		}
	}
	t.Logf("%d claims of %d runs", k.Count(`SELECT count(*) FROM kagzi_audit.changes`), runs)
}

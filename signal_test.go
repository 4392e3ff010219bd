package kagzi

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

	"github.com/kagzi/kagzi/internal/dbtest"
)

// reading is a workflow that reads n messages of each signal, one after the other.
func reading(n int, signals ...Signal[string]) func(Context, struct{}) (string, error) {
	return func(ctx Context, _ struct{}) (string, error) {
		var got []string
		for range n {
			for _, s := range signals {
				v, err := WaitSignal(ctx, s)
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
		k := newKit(t)
		wf := Define[struct{}, string]("wf")
		run := begin(k, wf, struct{}{})
		for _, v := range []string{"a", "b", "c"} {
			k.signal(run.ID(), approved.With(v))
		}
		serve(k, wf, reading(3, approved))
		if got := resultOf(k, run); got != "a b c" {
			t.Errorf("got %q", got)
		}
		steps := k.steps(run.ID())
		if len(steps) != 3 || len(steps["approved#3"]) != 1 || string(steps["approved#2"][0].Output) != `"b"` {
			t.Errorf("steps %v", steps)
		}
		if n := k.count(unread); n != 0 {
			t.Errorf("%d messages are unread", n)
		}
	})
	t.Run("WhileSuspended", func(t *testing.T) {
		k := newKit(t)
		wf := Define[struct{}, string]("wf")
		serveWith(k, told, wf, reading(2, approved.For("call-7")))
		run := begin(k, wf, struct{}{}, ID("mine"))
		for i, v := range []string{"a", "b"} {
			info := k.waitStatus(run.ID(), StatusSleeping)
			if info.WaitingOn != "signal approved/call-7" || !info.AvailableAt.IsZero() {
				t.Errorf("waits on %q until %v", info.WaitingOn, info.AvailableAt)
			}
			k.signal([]Ref{run.ID(), ID("mine")}[i], approved.For("call-7").With(v))
			waitFor(t, "the message is read", func() bool { return k.count(unread) == 0 })
		}
		if got := resultOf(k, run); got != "a b" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("ByNameAndKey", func(t *testing.T) {
		k := newKit(t)
		wf := Define[struct{}, string]("wf")
		run := begin(k, wf, struct{}{})
		k.signal(run.ID(), approved.With("none"))
		k.signal(run.ID(), approved.For("a/b#%").With("odd"))
		k.signal(run.ID(), approved.For("a").With("a1"))
		k.signal(run.ID(), approved.For("b").With("b1"))
		k.signal(run.ID(), approved.For("a").With("a2"))
		serve(k, wf, reading(1, approved.For("b"), approved.For("a"), approved.For("a"), approved, approved.For("a").For("b#%")))
		if got := resultOf(k, run); got != "b1 a1 a2 none odd" {
			t.Errorf("got %q", got)
		}
		if steps := k.steps(run.ID()); len(steps["approved:a#2"]) != 1 || len(steps["approved:a%2Fb%23%25"]) != 1 || len(steps["approved"]) != 1 {
			t.Errorf("steps %v", steps)
		}
	})
	t.Run("ToNobodyWhoWaits", func(t *testing.T) {
		k := newKit(t)
		wf := Define[struct{}, string]("wf")
		serve(k, wf, reading(0))
		run := begin(k, wf, struct{}{}, ID("x"))
		resultOf(k, run)
		for _, ref := range []Ref{run.ID(), ID("x")} {
			if err := k.c.Signal(k.ctx, ref, approved.With("")); !errors.Is(err, ErrRunFinished) {
				t.Errorf("of a run that is over: %v", err)
			}
		}
		for _, ref := range []Ref{RunID("00000000-0000-7000-8000-000000000000"), RunID("nonsense"), ID("y")} {
			if err := k.c.Signal(k.ctx, ref, approved.With("")); !errors.Is(err, ErrNotFound) {
				t.Errorf("of no run: %v", err)
			}
		}
		if n := k.count(unread); n != 0 {
			t.Errorf("%d messages were stored", n)
		}
	})
	t.Run("NamespacesAreApart", func(t *testing.T) {
		k := newKit(t)
		wf := Define[struct{}, string]("wf")
		other := clientWith(t, k.pool, ClientConfig{Namespace: "other"})
		run := begin(k, wf, struct{}{}, ID("x"))
		for _, ref := range []Ref{run.ID(), ID("x")} {
			if err := other.Signal(k.ctx, ref, approved.With("")); !errors.Is(err, ErrNotFound) {
				t.Errorf("from another namespace: %v", err)
			}
		}
		theirs, err := Start(k.ctx, other, wf, struct{}{}, ID("x"))
		if err != nil {
			t.Fatal(err)
		}
		k.signal(ID("x"), approved.With("ours").WithID("m"))
		if err := other.Signal(k.ctx, ID("x"), approved.With("theirs").WithID("m")); err != nil {
			t.Fatal(err)
		}
		for _, c := range []*Client{k.c, other} {
			w := newTestWorker(t, c, WorkerConfig{})
			Handle(w, wf, reading(1, approved))
			startWorker(t, w)
		}
		if a, b := resultOf(k, run), resultOf(k, theirs); a != "ours" || b != "theirs" {
			t.Errorf("got %q and %q", a, b)
		}
	})
}

func TestSignalIsIdempotentByID(t *testing.T) {
	k := newKit(t)
	wf := Define[struct{}, string]("wf")
	run := begin(k, wf, struct{}{}, ID("x"))
	for range 3 {
		k.signal(run.ID(), approved.With("a").WithID("m"))
	}
	k.signal(run.ID(), rejected.With("of another name").WithID("m"))
	k.signal(run.ID(), approved.With("b").WithID("m2"))
	if n := k.count(`SELECT wakeups FROM kagzi.workflow_runs`); n != 2 {
		t.Errorf("%d wakeups, want 2", n)
	}
	serve(k, wf, reading(2, approved))
	if got := resultOf(k, run); got != "a b" {
		t.Errorf("got %q", got)
	}
	// Who repeats a message because its answer was lost must not be told that it came too late.
	k.signal(run.ID(), approved.With("a").WithID("m"))
	k.signal(ID("x"), approved.With("a").WithID("m"))
	if err := k.c.Signal(k.ctx, run.ID(), approved.With("a").WithID("m3")); !errors.Is(err, ErrRunFinished) {
		t.Errorf("another message: %v", err)
	}
}

func TestSignalInTx(t *testing.T) {
	k := newKit(t)
	wf := Define[struct{}, string]("wf")
	serveWith(k, told, wf, reading(2, approved))
	run := begin(k, wf, struct{}{}, ID("x"))
	k.waitStatus(run.ID(), StatusSleeping)
	inTx := func(f func(tx pgx.Tx)) pgx.Tx {
		tx := k.callersTx()
		f(tx)
		return tx
	}
	taken := inTx(func(tx pgx.Tx) { k.signal(run.ID(), approved.With("taken back"), InTx(tx)) })
	rollbackTx(t, taken)
	kept := inTx(func(tx pgx.Tx) {
		k.signal(run.ID(), approved.With("a").WithID("m"), InTx(tx))
		k.signal(run.ID(), approved.With("a").WithID("m"), InTx(tx))
		if err := k.c.Signal(k.ctx, ID("y"), approved.With(""), InTx(tx)); !errors.Is(err, ErrNotFound) {
			t.Errorf("of no run: %v", err)
		}
		k.signal(ID("x"), approved.With("b"), InTx(tx))
	})
	if n := k.count(`SELECT count(*) FROM kagzi.signals`); n != 0 {
		t.Errorf("%d messages are visible before the commit", n)
	}
	commitTx(t, kept)
	if got := resultOf(k, run); got != "a b" {
		t.Errorf("got %q", got)
	}
	over := inTx(func(tx pgx.Tx) {
		if err := k.c.Signal(k.ctx, run.ID(), approved.With(""), InTx(tx)); !errors.Is(err, ErrRunFinished) {
			t.Errorf("of a run that is over: %v", err)
		}
		k.signal(run.ID(), approved.With("a").WithID("m"), InTx(tx))
	})
	if err := over.Commit(k.ctx); err != nil {
		t.Errorf("the transaction was broken: %v", err)
	}
}

// TestSignalInALongTransaction shows that a run which a caller's transaction had locked while it became due is claimed
// once that commits, though nobody polls.
func TestSignalInALongTransaction(t *testing.T) {
	k := newKit(t)
	wf := Define[struct{}, string]("wf")
	run := begin(k, wf, struct{}{})
	tx := k.callersTx()
	k.signal(run.ID(), approved.With("a"), InTx(tx))
	serveWith(k, told, wf, reading(1, approved))
	other := begin(k, wf, struct{}{}) // the worker claims, and passes over the locked row
	k.waitStatus(other.ID(), StatusSleeping)
	commitTx(t, tx)
	if got := resultOf(k, run); got != "a" {
		t.Errorf("got %q", got)
	}
}

func TestBadSignals(t *testing.T) {
	k := newKit(t)
	c := clientWith(t, k.pool, ClientConfig{MaxPayload: 100})
	k.c = c
	wf := Define[struct{}, string]("wf", noRetry)
	run := begin(k, wf, struct{}{})
	long := strings.Repeat("x", 250)
	for _, bad := range []struct {
		m    Message
		opts []ChangeOption
		says string
	}{
		{Message{}, nil, "the Message is empty: make one with Signal.With"},
		{DefineSignal[int]("").With(1), nil, "the signal's name is empty"},
		{approved.With("").WithID(""), nil, "message's ID is empty"},
		{approved.With("").WithID("a\n"), nil, "control character"},
		{DefineSignal[int]("a/b").With(1), nil, "'/'"},
		{DefineSignal[int]("a#2").With(1), nil, "'#'"},
		{DefineSignal[int]("a\n").With(1), nil, "control character"},
		{approved.For("").With(""), nil, "key of signal \"approved\" is empty"},
		{approved.For("a\x00").With(""), nil, "control character"},
		{approved.For("a\xff").With(""), nil, "UTF-8"},
		{approved.For(long).With(""), nil, "at most 255"},
		{DefineSignal[func()]("f").With(nil), nil, "func() cannot be encoded"},
		{DefineSignal[float64]("f").With(math.NaN()), nil, "cannot be encoded"},
		{approved.With(long), nil, "252 bytes, the limit (ClientConfig.MaxPayload) is 100"},
		{approved.With(""), []ChangeOption{InTx(nil)}, "begin a transaction"},
		{approved.With(""), []ChangeOption{nil}, "nil option"},
		{approved.With(""), []ChangeOption{Reason("r")}, "a message takes no Reason: put it into the payload"},
		{approved.With(""), []ChangeOption{Grace(time.Second)}, "Grace is for Cancel"},
		{approved.With(""), []ChangeOption{Forget("s")}, "Forget is for Resume"},
		{approved.With(""), []ChangeOption{DryRun()}, "DryRun is for the verbs that take a RunFilter"},
	} {
		err := k.c.Signal(k.ctx, run.ID(), bad.m, bad.opts...)
		mustContain(t, err, bad.says)
		if bad.opts == nil {
			_, err = Start(k.ctx, k.c, wf, struct{}{}, bad.m)
			mustContain(t, err, bad.says)
		}
	}
	if err := k.c.Signal(k.ctx, run.ID(), approved.With(long)); !errors.Is(err, ErrPayloadTooLarge) {
		t.Errorf("too large: %v", err)
	}
	mustContain(t, k.c.Signal(k.ctx, nil, approved.With("")), "reference is nil")
	mustContain(t, k.c.Schedule(k.ctx, Schedule{Name: "s", Every: time.Hour, Run: wf.With(struct{}{}, approved.With(""))}), "Message")
	if n := k.count(`SELECT count(*) FROM kagzi.signals`) + k.count(`SELECT count(*) FROM kagzi.workflow_runs`); n != 1 {
		t.Errorf("%d rows, want the run's", n)
	}
	serve(k, wf, func(ctx Context, _ struct{}) (string, error) {
		for _, try := range []func() (string, error){
			func() (string, error) { return WaitSignal(ctx, DefineSignal[string]("a/b")) },
			func() (string, error) { return WaitSignal(ctx, approved.For("")) },
			func() (string, error) { return WaitSignal(ctx, approved, Timeout(30)) },
			func() (string, error) { return WaitSignal(ctx, approved, Timeout(0)) },
			func() (string, error) { return WaitSignal(ctx, approved, Timeout(time.Hour), Timeout(time.Hour)) },
			func() (string, error) { return WaitSignal[string](nil, approved) },
		} {
			if _, err := try(); KindOf(err) != KindBadRequest {
				t.Errorf("got %v", err)
			}
		}
		return "", nil
	})
	if re := failureOf(k, run, StatusFailed); re.Kind != KindBadRequest {
		t.Errorf("got %v", re)
	}
}

// TestSignalFromAStep shows that further attempts of a step, and of its run, send nothing twice, and that no two messages
// of an attempt are taken for one.
func TestSignalFromAStep(t *testing.T) {
	k := newKit(t)
	to, from := Define[struct{}, string]("to"), Define[string, int]("from", soon)
	target := begin(k, to, struct{}{}, ID("target"))
	serve(k, from, func(ctx Context, id string) (int, error) {
		return 1, Do(ctx, "send", func(c context.Context) error {
			for _, err := range []error{
				k.c.Signal(c, RunID(id), approved.With("1")),
				k.c.Signal(c, RunID(id), approved.With("2")),
				k.c.Signal(c, ID("target"), approved.With("3")),
				k.c.Signal(c, RunID(id), rejected.With("4")),
				k.c.Signal(c, RunID(id), approved.With("5").WithID("mine")),
			} {
				if err != nil {
					return err
				}
			}
			if _, err := Start(c, k.c, to, struct{}{}, ID("target"), approved.With("6")); err != nil {
				return err
			}
			if CurrentStep(c).Attempt < 3 {
				return errors.New("again")
			}
			return nil
		}, soon)
	})
	resultOf(k, begin(k, from, string(target.ID())))
	w := newTestWorker(t, k.c, WorkerConfig{})
	Handle(w, to, func(ctx Context, _ struct{}) (string, error) {
		var got []string
		for {
			v, err := WaitSignal(ctx, approved, Timeout(time.Millisecond))
			if errors.Is(err, KindTimeout) {
				return strings.Join(got, " "), nil
			}
			got = append(got, v)
		}
	})
	startWorker(t, w)
	if got := resultOf(k, target); got != "1 2 3 5 6" {
		t.Errorf("got %q", got)
	}
	if n := k.count(`SELECT count(*) FROM kagzi.signals WHERE name = 'rejected'`); n != 1 {
		t.Errorf("%d messages of the other name", n)
	}
}

// TestAStepThatIsTriedAgainSendsOtherMessages has each attempt of a step send what the table says: the run gets what any of
// them sent, each message once, and nothing is taken for another because it is the n-th.
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
		for with, send := range map[string]func(context.Context, *kit, Workflow[struct{}, string], string) error{
			"": func(ctx context.Context, k *kit, _ Workflow[struct{}, string], text string) error {
				return k.c.Signal(ctx, ID("x"), approved.With(text))
			},
			"WithStart": func(ctx context.Context, k *kit, wf Workflow[struct{}, string], text string) error {
				_, err := Start(ctx, k.c, wf, struct{}{}, ID("x"), approved.With(text))
				return err
			},
		} {
			t.Run(name+with, func(t *testing.T) {
				k := newSealedKit(t) // the same payload is stored as other bytes each time
				receiver, sender := Define[struct{}, string]("receiver"), Define[struct{}, int]("sender")
				to := begin(k, receiver, struct{}{}, ID("x"), Queue("later"))
				serve(k, sender, func(ctx Context, _ struct{}) (int, error) {
					return 0, Do(ctx, "send", func(ctx context.Context) error {
						attempt := CurrentStep(ctx).Attempt
						for _, text := range tt.attempts[attempt-1] {
							if err := send(ctx, k, receiver, text); err != nil {
								return Permanent(err)
							}
						}
						if attempt < len(tt.attempts) {
							return KindNetwork
						}
						return nil
					}, soon)
				})
				resultOf(k, begin(k, sender, struct{}{}))
				later := newTestWorker(t, k.c, WorkerConfig{Queue: "later"})
				Handle(later, receiver, reading(len(strings.Fields(tt.want)), approved))
				startWorker(t, later)
				if n := k.count(`SELECT count(*) FROM kagzi.signals`); n != len(strings.Fields(tt.want)) {
					t.Errorf("%d messages", n)
				}
				if got := resultOf(k, to); got != tt.want {
					t.Errorf("got %q, want %q", got, tt.want)
				}
			})
		}
	}
}

// TestSignalFromAStepToAnotherHolder has a step send to an ID, and fail: when it is tried again another run has the ID,
// which is not sent what the first one got.
func TestSignalFromAStepToAnotherHolder(t *testing.T) {
	k := newKit(t)
	to, from := Define[struct{}, string]("to"), Define[struct{}, int]("from")
	first := begin(k, to, struct{}{}, ID("target"))
	var second *Run[string]
	serve(k, from, func(ctx Context, _ struct{}) (int, error) {
		return 1, Do(ctx, "send", func(c context.Context) error {
			if err := k.c.Signal(c, ID("target"), approved.With("paid")); err != nil {
				return err
			}
			if CurrentStep(c).Attempt > 1 {
				return nil
			}
			if err := first.Cancel(c); err != nil {
				return err
			}
			second = begin(k, to, struct{}{}, ID("target"))
			return errors.New("again")
		}, soon)
	})
	resultOf(k, begin(k, from, struct{}{}))
	if n := k.count(`SELECT count(*) FROM kagzi.signals WHERE run_id = $1`, string(second.ID())); n != 0 {
		t.Errorf("the run that has the ID now got %d messages, which were sent to another", n)
	}
	if n := k.count(unread); n != 1 {
		t.Errorf("%d messages, want the one", n)
	}
}

// TestSignalOfARunBeingCancelled stores a message for a run that is about to be undone: nothing fails.
func TestSignalOfARunBeingCancelled(t *testing.T) {
	k := newKit(t)
	run := begin(k, Define[struct{}, string]("wf"), struct{}{})
	k.exec(`UPDATE kagzi.workflow_runs SET cancel_requested_at = now()`)
	k.signal(run.ID(), approved.With("late"))
	if n := k.count(unread); n != 1 {
		t.Errorf("%d messages, want 1", n)
	}
}

// TestThousandSignals sends 1,000 signals from 8 goroutines to 100 runs that are suspended and claimed all the while, by
// two workers. Each run reads what was sent to it, in its order.
func TestThousandSignals(t *testing.T) {
	k := newKit(t)
	dbtest.Audit(t, k.pool)
	wf := Define[struct{}, []string]("wf")
	const runs, each = 100, 5
	names := []Signal[string]{approved, rejected.For("x")}
	read := func(ctx Context, _ struct{}) ([]string, error) {
		var got []string
		for _, s := range names { // one after the other: the second's are kept meanwhile
			for range each {
				v, err := WaitSignal(ctx, s)
				if err != nil {
					return nil, err
				}
				got = append(got, v)
			}
		}
		return got, nil
	}
	for range 2 {
		serveWith(k, WorkerConfig{MaxConcurrent: 40}, wf, read)
	}
	started := make([]*Run[[]string], runs)
	for i := range started {
		started[i] = begin(k, wf, struct{}{})
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range each { // each run's messages of a name come from one goroutine
				for r := g / 2; r < runs; r += 4 {
					if err := k.c.Signal(k.ctx, started[r].ID(), names[g%2].With(fmt.Sprint(g%2, i))); err != nil {
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
		if got := resultOf(k, r); !slices.Equal(got, want) {
			t.Errorf("run %d read %v, want %v", i, got, want)
		}
	}
	t.Logf("%d claims of %d runs", k.count(`SELECT count(*) FROM kagzi_audit.changes`), runs)
}

package requests_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/request"
)

// mirror is a Sealer that reverses the bytes, and puts a mark in front.
type mirror struct{}

func (mirror) HashKey() []byte { return []byte("key") }

func (mirror) Seal(data []byte) ([]byte, error) {
	data = slices.Clone(data)
	slices.Reverse(data)
	return append([]byte("sealed:"), data...), nil
}

func (mirror) Open(sealed []byte) ([]byte, error) {
	data, ok := bytes.CutPrefix(sealed, []byte("sealed:"))
	if !ok {
		return nil, errors.New("it is not sealed")
	}
	data = slices.Clone(data)
	slices.Reverse(data)
	return data, nil
}

var echo = request.Define[string, string]("echo")

// echoing answers so many requests with their payload, the value of a header and a text.
func echoing(n int) func(kagzi.Context, struct{}) (int, error) {
	return func(ctx kagzi.Context, _ struct{}) (int, error) {
		for range n {
			r, err := request.Wait(ctx, echo)
			if err != nil {
				return 0, err
			}
			if err := r.Reply(ctx, r.In+r.Headers["by"]); err != nil {
				return 0, err
			}
		}
		return 0, nil
	}
}

// TestSealedRequest has a payload and an answer that the tables do not show, also where a run asks.
func TestSealedRequest(t *testing.T) {
	k := kit.NewWith(t, kagzi.ClientConfig{Sealer: mirror{}})
	kit.Serve(k, cart, echoing(2))
	run := kit.Begin(k, cart, struct{}{})
	got, err := request.Ask(k.Ctx, k.Client, run, echo.With("secret").WithID("q"))
	if err != nil || got != "secret" {
		t.Errorf("got %q, %v", got, err)
	}
	wf := kagzi.Define[struct{}, string]("asks")
	kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (string, error) {
		return request.AskStep(ctx, "ask", run, echo.With("secret"))
	})
	if got := kit.ResultOf(k, kit.Begin(k, wf, struct{}{})); got != "secret" {
		t.Errorf("a run got %q", got)
	}
	for _, table := range []string{"signals.payload", "step_runs.output"} {
		name, column, _ := strings.Cut(table, ".")
		n := k.Count(`SELECT count(*) FROM kagzi.` + name + ` WHERE position('secret'::bytea IN ` + column + `) > 0`)
		if n != 0 {
			t.Errorf("%d rows of %s show the payload", n, table)
		}
	}
	_, err = request.Ask(k.Ctx, k.Client, run, echo.With("other").WithID("q"))
	if !errors.Is(err, kagzi.ErrIDConflict) {
		t.Errorf("another payload: %v", err)
	}
}

// TestInterceptedRequest has interceptors of signals and starts, which set and see headers, and one that refuses.
func TestInterceptedRequest(t *testing.T) {
	var seen []string
	k := kit.NewWith(t, kagzi.ClientConfig{Interceptors: []kagzi.Interceptor{{
		Signal: func(ctx context.Context, m *kagzi.SignalCall, next func(context.Context) error) error {
			seen = append(seen, "signal "+m.Signal+" "+string(m.ID))
			if m.ID == "no" {
				return kind.Unauthorized
			}
			m.SetHeader("by", "!")
			return next(ctx)
		},
		Start: func(ctx context.Context, calls []*kagzi.StartCall, next func(context.Context) error) error {
			seen = append(seen, "start "+string(calls[0].ID))
			return next(ctx)
		},
	}}})
	kit.Serve(k, cart, echoing(3))
	call := cart.With(struct{}{}, kagzi.ID("c"))
	for _, c := range []struct {
		to   request.Target
		q    request.Question[string]
		want string
	}{
		{call, echo.With("a").WithID("1").WithHeaders(kagzi.Headers{"by": "?"}), "a?"}, // the start's, not a signal's
		{kagzi.ID("c"), echo.With("b").WithID("2"), "b!"},
		{call, echo.With("a").WithID("1").WithHeaders(kagzi.Headers{"by": "?"}), "a?"},
	} {
		if got, err := request.Ask(k.Ctx, k.Client, c.to, c.q); err != nil || got != c.want {
			t.Errorf("got %q, %v, want %q", got, err, c.want)
		}
	}
	_, err := request.Ask(k.Ctx, k.Client, kagzi.ID("c"), echo.With("d").WithID("no"))
	if !errors.Is(err, kind.Unauthorized) {
		t.Errorf("refused: %v", err)
	}
	want := []string{"start c", "signal echo 2", "signal echo 1", "signal echo no"}
	if !slices.Equal(seen, want) {
		t.Errorf("the interceptors saw %q, want %q", seen, want)
	}
}

// TestLargeRequest has payloads and answers over the limit: no request is stored, and a reply fails where it is made.
func TestLargeRequest(t *testing.T) {
	k := kit.NewWith(t, kagzi.ClientConfig{MaxPayload: 100})
	kit.Serve(k, cart, func(ctx kagzi.Context, _ struct{}) (int, error) {
		r, err := request.Wait(ctx, echo)
		if err != nil {
			return 0, err
		}
		if err := r.Reply(ctx, strings.Repeat("x", 200)); !errors.Is(err, kagzi.ErrPayloadTooLarge) {
			t.Errorf("the reply: %v", err)
		}
		return 1, r.Refuse(ctx, errors.New("too large"))
	})
	run := kit.Begin(k, cart, struct{}{})
	_, err := request.Ask(k.Ctx, k.Client, run, echo.With(strings.Repeat("x", 200)))
	if !errors.Is(err, kagzi.ErrPayloadTooLarge) || k.Count(`SELECT count(*) FROM kagzi.signals`) != 0 {
		t.Errorf("the question: %v", err)
	}
	_, err = request.Ask(k.Ctx, k.Client, run, echo.With("x"))
	if refusal, ok := errors.AsType[*request.Refusal](err); !ok || refusal.Message != "too large" {
		t.Errorf("got %v", err)
	}
}

// TestSendWithACall starts the run with the request in the caller's transaction.
func TestSendWithACall(t *testing.T) {
	k := kit.New(t)
	q, call := add.With(3).WithID("q"), cart.With(struct{}{}, kagzi.ID("c"))
	for _, commits := range []bool{false, true} {
		tx, err := k.Pool.Begin(k.Ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := request.Send(k.Ctx, k.Client, call, q, kagzi.InTx(tx)); err != nil {
			t.Error(err)
		}
		if commits {
			err = tx.Commit(k.Ctx)
		} else {
			err = tx.Rollback(k.Ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	kit.Serve(k, cart, serving(1))
	ask(k, call, q, 3)
	kit.ResultOf(k, kit.Find(t, k.Client, cart, kagzi.ID("c")))
	ask(k, call, q, 3) // no other run is started
	if n := k.Count(`SELECT count(*) FROM kagzi.workflow_runs`); n != 1 {
		t.Errorf("%d runs", n)
	}
	if err := request.Send(k.Ctx, k.Client, call, q, kagzi.Actor("Ada")); err == nil {
		t.Error("a start takes no Actor")
	}
}

// TestNamesOfRequests has a request in the run's log and in its list of messages under the name that it was given, and
// no signal that reaches a request.
func TestNamesOfRequests(t *testing.T) {
	k := kit.New(t)
	run := kit.Begin(k, cart, struct{}{})
	if err := request.Send(k.Ctx, k.Client, run, add.With(1).WithID("q"), kagzi.Reason("a test")); err != nil {
		t.Fatal(err)
	}
	a := admin.New(k.Client)
	events, err := a.Runs.Log(k.Ctx, run)
	if err != nil || len(events) != 1 || events[0].Changes[0].Field != "request" || events[0].Changes[0].To != "add" {
		t.Errorf("log %+v, %v", events, err)
	}
	list, err := a.Messages.List(k.Ctx, run, admin.MessageFilter{Signal: "add", Request: true})
	if err != nil || len(list) != 1 || list[0].Signal != "add" || !list[0].Request {
		t.Errorf("list %+v, %v", list, err)
	}
	for _, name := range []string{"#add", "##ask"} {
		if err := k.Client.Signal(k.Ctx, run, kagzi.DefineSignal[int](name).With(1)); err == nil {
			t.Errorf("a signal has the name %q", name)
		}
	}
}

// TestReplayOfRequests replays histories with requests against the same code, and against code that waits for a signal.
func TestReplayOfRequests(t *testing.T) {
	k := kit.New(t)
	kit.Serve(k, cart, serving(1))
	run := kit.Begin(k, cart, struct{}{})
	ask(k, run, add.With(2), 2)
	kit.ResultOf(k, run)
	other := kagzi.DefineSignal[int]("add")
	for name, fn := range map[string]func(kagzi.Context, struct{}) (int, error){
		"":    serving(1),
		"add": func(ctx kagzi.Context, _ struct{}) (int, error) { return kagzi.WaitSignal(ctx, other) },
	} {
		w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
		kagzi.Handle(w, cart, fn)
		err := w.Replay(k.Ctx, run.ID())
		diverged, ok := errors.AsType[*kagzi.DivergenceError](err)
		if ok != (name != "") || ok && diverged.Step != name {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestRestartAnswersAnew restarts a run that has answered: the new one has none of its requests.
func TestRestartAnswersAnew(t *testing.T) {
	k := kit.New(t)
	kit.Serve(k, cart, serving(1))
	run := kit.Begin(k, cart, struct{}{}, kagzi.ID("c"))
	ask(k, run, add.With(2).WithID("q"), 2)
	kit.ResultOf(k, run)
	id, err := admin.New(k.Client).Runs.Restart(k.Ctx, run)
	if err != nil {
		t.Fatal(err)
	}
	ask(k, kagzi.ID("c"), add.With(2).WithID("q"), 2) // the first answer
	ask(k, id, add.With(3).WithID("q"), 3)
}

// TestQuestionThatIsOvertaken has a program that finds that no run has its question, and then is slow. Meanwhile
// another one asks the same, gets its answer, and the run ends. The slow one gets that answer: no other run is asked.
func TestQuestionThatIsOvertaken(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		to    request.Target
		holds string // a statement of the slow program
		next  bool   // another run has the ID by then
	}{
		"OfTheActiveRun":  {kagzi.ID("c"), "status IN ('PENDING', 'SLEEPING', 'RUNNING')", true},
		"OfAStart":        {cart.With(struct{}{}, kagzi.ID("c")), "INSERT INTO kagzi.workflow_runs", false},
		"OfAStartOfANext": {cart.With(struct{}{}, kagzi.ID("c")), "INSERT INTO kagzi.workflow_runs", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := kit.NewLossy(t, false)
			k := &kit.Kit{T: t, Ctx: kit.Context(t), Pool: l.Db.Pool, Client: kit.NewClient(t, l.Db.Pool)}
			answers := 0
			kit.Serve(k, cart, func(ctx kagzi.Context, _ struct{}) (int, error) {
				r, err := request.Wait(ctx, add)
				if err != nil {
					return 0, err
				}
				answers++
				return 0, r.Reply(ctx, answers)
			})
			run := kit.Begin(k, cart, struct{}{}, kagzi.ID("c"))
			q := add.With(1).WithID("q")
			held := l.Proxy.HoldRequest(pgproxy.Contains(c.holds), func([][]byte) bool { return false })
			slow, got := l.Client(t, 5), make(chan int, 1)
			go func() {
				n, err := request.Ask(k.Ctx, slow, c.to, q)
				if err != nil {
					t.Error(err)
				}
				got <- n
			}()
			await.True(t, "the slow program is held up", held.Holds)
			ask(k, run, q, 1)
			kit.ResultOf(k, run)
			if c.next {
				kit.Begin(k, cart, struct{}{}, kagzi.ID("c"))
			}
			held.Release()
			if n := await.Receive(t, got); n != 1 {
				t.Errorf("got the answer %d", n)
			}
			ask(k, c.to, q, 1)
			if n := k.Count(`SELECT count(*) FROM kagzi.signals`); n != 1 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

package kagziotel_test

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
	kagziotel "github.com/kagzi/kagzi/otel"
)

// A start, its execution, steps, and a child with its execution are one trace.
func TestOneTraceFromStartToChild(t *testing.T) {
	k, p := newKit(t)
	child := kagzi.Define[string, string]("ship")
	wf := kagzi.Define[string, string]("checkout", kagzi.Queue("shop"))
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{Queues: map[string]int{"shop": 1, "default": 1}})
	kagzi.Handle(w, child, func(ctx kagzi.Context, _ string) (string, error) {
		return kagzi.Step(ctx, "pack", func(ctx context.Context) (string, error) {
			return baggage.FromContext(ctx).Member("tenant").Value(), nil
		})
	})
	kagzi.Handle(w, wf, func(ctx kagzi.Context, _ string) (string, error) {
		if err := kagzi.DoTx(ctx, "charge", func(context.Context, pgx.Tx) error { return nil }); err != nil {
			return "", err
		}
		c, err := kagzi.RunChild(ctx, "ship", child, "", kagzi.Queue("default"))
		return c, err
	})
	kit.StartWorker(t, w)

	ctx, request := p.tracer.Start(withBaggage(t, k.Ctx, "tenant", "acme"), "POST /orders")
	run, err := kagzi.Start(ctx, k.Client, wf, "", kagzi.ID("order-7"), kagzi.Headers{"own": "1"})
	if err != nil {
		t.Fatal(err)
	}
	request.End()
	if got := kit.ResultOf(k, run); got != "acme" {
		t.Errorf("the child's step has the tenant %q", got)
	}
	root, start, execution := p.one("POST /orders"), p.one("start checkout"), p.named("execute checkout")[0]
	charge, startChild, executeChild, pack := p.one("step charge"), p.one("start ship"), p.one("execute ship"),
		p.one("step pack")
	wantParent(t, root, start)
	wantParent(t, start, execution)
	wantParent(t, execution, charge, startChild)
	wantParent(t, startChild, executeChild)
	wantParent(t, executeChild, pack)
	later := p.named("execute checkout")[1:] // if the wait for the child was long
	if n := len(p.spans.GetSpans()) - len(later); n != 7 {
		t.Errorf("%d spans:\n%s", n, p.list())
	}
	last := execution
	for _, e := range later {
		if got := links(e); e.Parent.IsValid() || got["previous execution"] != last.SpanContext.SpanID() ||
			got["start"] != start.SpanContext.SpanID() {
			t.Errorf("a later execution is linked to %v", got)
		}
		last = e
	}
	id := string(run.ID())
	wantAttrs(t, start, "messaging.system", "kagzi", "messaging.operation.name", "start",
		"messaging.operation.type", "send",
		"messaging.destination.name", "shop", "messaging.message.id", id, "kagzi.run.id", id,
		"kagzi.run.external_id", "order-7",
		"kagzi.workflow.name", "checkout", "kagzi.start.origin", "call")
	wantAttrs(t, execution, "messaging.operation.name", "execute", "messaging.operation.type", "process",
		"messaging.destination.name", "shop", "kagzi.run.id", id,
		"kagzi.workflow.version", "", "kagzi.run.attempt", "", "kagzi.execution.resumed", "", "kagzi.run.age", "",
		"kagzi.run.external_id", "order-7")
	wantAttrs(t, last, "kagzi.execution.resumed", "true", "kagzi.outcome", "", "kagzi.run.status", "COMPLETED")
	wantAttrs(t, charge, "kagzi.step.name", "charge", "kagzi.step.attempt", "", "kagzi.outcome", "", "kagzi.run.id", id)
	wantAttrs(t, startChild, "kagzi.start.origin", "child", "kagzi.run.parent_id", id, "kagzi.run.parent_step", "ship")
	wantAttrs(t, executeChild, "kagzi.run.parent_id", id)
	for _, tt := range []struct {
		of   string
		kind trace.SpanKind
	}{
		{"start checkout", trace.SpanKindProducer},
		{"execute ship", trace.SpanKindConsumer},
		{"step charge", trace.SpanKindInternal},
	} {
		if got := p.one(tt.of).SpanKind; got != tt.kind {
			t.Errorf("%s is a %s", tt.of, got)
		}
	}
	if own := k.InfoOf(run.ID()).Headers["own"]; own != "1" {
		t.Errorf("the caller's header is %q", own)
	}

	again, err := kagzi.Start(ctx, k.Client, wf, "", kagzi.ID("order-7"), kagzi.IfEnded(kagzi.RejectEnded))
	if err == nil {
		t.Fatalf("started %v", again)
	}
	refused := p.named("start checkout")[1]
	if refused.Status.Code != codes.Error || attr(refused, "error.type") != "bad_request" {
		t.Errorf("the refused start has %v %v", refused.Status, refused.Attributes)
	}
}

// Attempts of steps and of runs that fail are told with their kinds, and linked.
func TestRetriesAreLinked(t *testing.T) {
	k, p := newKit(t)
	policy := kagzi.RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond}
	wf := kagzi.Define[string, string]("wf", policy)
	serve(k, kit.NotifiedOnly, wf, func(ctx kagzi.Context, _ string) (string, error) {
		err := kagzi.Do(ctx, "call", func(context.Context) error { return fmt.Errorf("call: %w", kind.Unavailable) },
			policy)
		return "", err
	})
	kit.FailureOf(k, kit.Begin(k, wf, ""), kagzi.StatusFailed)
	calls, executions := p.named("step call"), p.named("execute wf")
	if len(calls) != 4 || len(executions) != 2 {
		t.Fatalf("spans\n%s", p.list())
	}
	for i, s := range calls {
		wantAttrs(t, s, "kagzi.step.attempt", []string{"", "2", "3", "4"}[i], "kagzi.outcome", "failed", "error.type",
			"unavailable")
		if s.Status.Code != codes.Error || s.Status.Description != "call: unavailable" || len(s.Events) != 1 ||
			attrOf(s.Events[0].Attributes, "exception.message") != "call: unavailable" {
			t.Errorf("attempt %d: %v %v", i+1, s.Status, s.Events)
		}
		if i > 0 && links(s)["previous attempt"] != calls[i-1].SpanContext.SpanID() {
			t.Errorf("attempt %d has the links %v", i+1, links(s))
		}
	}
	wantParent(t, executions[0], calls[0], calls[1])
	wantParent(t, executions[1], calls[2], calls[3])
	wantAttrs(t, executions[0], "kagzi.outcome", "retried", "error.type", "unavailable", "kagzi.run.status", "")
	wantAttrs(t, executions[1], "kagzi.outcome", "failed", "error.type", "unavailable", "kagzi.run.status", "FAILED",
		"kagzi.run.attempt", "2")
	if got := links(executions[1]); got["previous execution"] != executions[0].SpanContext.SpanID() ||
		got["start"] != p.one("start wf").SpanContext.SpanID() {
		t.Errorf("the second attempt has the links %v", got)
	}
	p.wantPoints("kagzi.step.duration", map[string]float64{"error.type=unavailable outcome=failed step.name=call " +
		"workflow.name=wf": 4})
	p.wantPoints("kagzi.execution.duration", map[string]float64{
		"error.type=unavailable outcome=failed queue.name=default workflow.name=wf":  1,
		"error.type=unavailable outcome=retried queue.name=default workflow.name=wf": 1,
	})
}

// Panics, a Goexit, cancels and shutdowns are told for what they are.
func TestEndsOfExecutions(t *testing.T) {
	k, p := newKit(t)
	wf := kagzi.Define[string, string]("wf")
	begun := make(chan struct{}, 1)
	stop := serve(k, kagzi.WorkerConfig{DrainTimeout: 100 * time.Millisecond}, wf,
		func(ctx kagzi.Context, mode string) (string, error) {
			opts := []kagzi.StepOption{kagzi.RetryPolicy{MaxAttempts: 1}}
			if mode == "timeout" {
				opts = append(opts, kagzi.Timeout(time.Millisecond))
			}
			return kagzi.Step(ctx, mode, func(ctx context.Context) (string, error) {
				switch mode {
				case "panic":
					panic("boom")
				case "exit":
					runtime.Goexit()
				}
				begun <- struct{}{}
				<-ctx.Done()
				return "", ctx.Err()
			}, opts...)
		})
	for _, tt := range []struct {
		mode        string
		act         func(*kagzi.Run[string])
		step, kind  string
		execution   string
		status      kagzi.Status
		description string
	}{
		{"panic", nil, "failed", "panic", "failed", kagzi.StatusFailed, "panic: boom"},
		{"exit", nil, "failed", "panic", "failed", kagzi.StatusFailed, "the function ended its goroutine with " +
			"runtime.Goexit"},
		{
			"timeout", func(*kagzi.Run[string]) { await.Opened(t, begun) }, "failed", "timeout", "failed",
			kagzi.StatusFailed, "context deadline exceeded",
		},
		{"cancel", func(run *kagzi.Run[string]) {
			await.Opened(t, begun)
			k.Cancel(run.ID())
		}, "abandoned", "", "cancelled", kagzi.StatusCancelled, ""},
		{"shutdown", func(*kagzi.Run[string]) {
			await.Opened(t, begun)
			if err := stop(); err != nil {
				t.Error(err)
			}
		}, "abandoned", "", "returned", "", ""},
	} {
		p.spans.Reset()
		run := kit.Begin(k, wf, tt.mode)
		if tt.act != nil {
			tt.act(run)
		}
		await.True(t, tt.mode+" has ended", func() bool { return len(p.named("execute wf")) > 0 })
		step, execution := p.one("step "+tt.mode), p.one("execute wf")
		wantAttrs(t, step, "kagzi.outcome", tt.step, "error.type", tt.kind)
		wantAttrs(t, execution, "kagzi.outcome", tt.execution, "kagzi.run.status", string(tt.status),
			"error.type", tt.kind)
		if step.Status.Description != tt.description || (step.Status.Code == codes.Error) != (tt.kind != "") ||
			(execution.Status.Code == codes.Error) != (tt.kind != "") {
			t.Errorf("%s: the step is %v, the execution %v", tt.mode, step.Status, execution.Status)
		}
		if tt.mode == "panic" {
			if e := step.Events[0]; e.Name != "exception" ||
				!strings.Contains(attrOf(e.Attributes, "exception.stacktrace"), "TestEndsOfExecutions") {
				t.Errorf("the panic is told as %v", e)
			}
		}
		if tt.step == "abandoned" && attr(step, "kagzi.reason") == "" {
			t.Errorf("%s: the step has %v", tt.mode, step.Attributes)
		}
	}
}

// An execution that lost its lease ends as lost, and so do its steps.
func TestLostLease(t *testing.T) {
	k, p := newKit(t)
	wf := kagzi.Define[string, string]("wf")
	begun, goOn := make(chan struct{}, 2), make(chan struct{})
	cfg := kit.Quick
	cfg.LeaseTimeout, cfg.StaleAfter = time.Second, 30*time.Second // no coordinator declares it dead
	serve(k, cfg, wf, func(ctx kagzi.Context, _ string) (string, error) {
		return kagzi.Step(ctx, "wait", func(ctx context.Context) (string, error) {
			begun <- struct{}{}
			select {
			case <-goOn:
				return "done", nil
			case <-ctx.Done():
				return "", ctx.Err()
			}
		})
	})
	run := kit.Begin(k, wf, "")
	await.Receive(t, begun)
	k.Exec(`UPDATE kagzi.workers SET status = 'OFFLINE', stopped_at = now()`)
	await.Receive(t, begun)
	close(goOn)
	kit.ResultOf(k, run)
	executions, steps := p.named("execute wf"), p.named("step wait")
	if len(executions) != 2 || len(steps) != 2 {
		t.Fatalf("spans\n%s", p.list())
	}
	wantAttrs(t, executions[0], "kagzi.outcome", "lost")
	wantAttrs(t, steps[0], "kagzi.outcome", "abandoned", "kagzi.reason", "kagzi: lease lost: others may execute "+
		"the run", "kagzi.step.attempt", "")
	wantAttrs(t, executions[1], "kagzi.outcome", "", "kagzi.run.status", "COMPLETED")
	wantAttrs(t, steps[1], "kagzi.outcome", "", "kagzi.step.attempt", "")
	if links(steps[1])["previous attempt"] != steps[0].SpanContext.SpanID() ||
		links(executions[1])["previous execution"] != executions[0].SpanContext.SpanID() {
		t.Errorf("links %v and %v", links(executions[1]), links(steps[1]))
	}
}

// The spans of parallel branches have names that do not tell the items apart.
func TestBranches(t *testing.T) {
	k, p := newKit(t)
	kit.Complete(k, func(ctx kagzi.Context) (int, error) {
		_, err := kagzi.Map(ctx, "ship", []int{1, 2, 3}, func(ctx kagzi.Context, n int) (int, error) {
			return kagzi.Step(ctx, "pack", func(context.Context) (int, error) { return n, nil })
		})
		return 0, err
	})
	packs, execution := p.named("step ship/*/pack"), p.named("execute wf")[0]
	if len(packs) != 3 {
		t.Fatalf("spans\n%s", p.list())
	}
	wantParent(t, execution, packs...)
	seen := map[string]bool{}
	for _, s := range packs {
		seen[attr(s, "kagzi.step.name")] = true
	}
	if !seen["ship/0/pack"] || !seen["ship/1/pack"] || !seen["ship/2/pack"] {
		t.Errorf("steps %v", seen)
	}
	p.wantPoints("kagzi.step.duration", map[string]float64{"outcome=completed step.name=ship/*/pack " +
		"workflow.name=wf": 3})
}

// What a schedule starts belongs to the span of its tick, and a batch to one span.
func TestSchedulesAndBatches(t *testing.T) {
	k, p := newKit(t)
	wf := kagzi.Define[string, string]("wf")
	co := k.Coordinator()
	k.Schedule(kagzi.Schedule{Name: "nightly", Cron: "0 3 * * *", Run: wf.With("")})
	k.Missed("nightly", 24*time.Hour)
	serve(k, kagzi.WorkerConfig{NoCoordinator: true}, wf, func(kagzi.Context, string) (string, error) {
		return "", nil
	})
	k.Pass(co)
	fired := k.Fired("nightly")
	kit.ResultOf(k, kit.Find(t, k.Client, wf, fired[0].ID))
	tick := p.one("start wf")
	wantParent(t, tick, p.one("execute wf"))
	wantAttrs(t, tick, "kagzi.schedule.name", "nightly", "kagzi.start.origin", "schedule")

	p.spans.Reset()
	started, err := k.Client.StartMany(k.Ctx, []kagzi.Call{wf.With(""), wf.With("")})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range started {
		kit.ResultOf(k, kit.Find(t, k.Client, wf, s.ID))
	}
	batch := p.one("start wf")
	wantParent(t, batch, p.named("execute wf")...)
	wantAttrs(t, batch, "messaging.batch.message_count", "2", "kagzi.run.id", "")

	p.spans.Reset()
	again, err := admin.New(k.Client).Runs.Restart(k.Ctx, started[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	kit.ResultOf(k, kit.Find(t, k.Client, wf, again))
	restart := p.one("start")
	wantParent(t, restart, p.one("execute wf"))
	wantAttrs(t, restart, "kagzi.start.origin", "restart", "kagzi.run.origin_id", string(started[0].ID))
	p.wantPoints("kagzi.run.starts", map[string]float64{
		"start.origin=call workflow.name=wf": 2, "start.origin=schedule workflow.name=wf": 1, "start.origin=restart": 1,
	})
}

// A message has the sender's context in its headers.
func TestSignals(t *testing.T) {
	k, p := newKit(t)
	wf := kagzi.Define[string, string]("wf")
	serve(k, kit.NotifiedOnly, wf, func(ctx kagzi.Context, _ string) (string, error) {
		m, err := kagzi.WaitMessage(ctx, kit.Approved)
		return m.Headers["traceparent"], err
	})
	run := kit.Begin(k, wf, "", kagzi.ID("x"))
	k.Signal(kagzi.ID("x"), kit.Approved.With(""))
	got := kit.ResultOf(k, run)
	signal := p.one("signal approved")
	if want := signal.SpanContext.SpanID().String(); !strings.Contains(got, want) {
		t.Errorf("the message has the traceparent %q, want one with %s", got, want)
	}
	wantAttrs(t, signal, "kagzi.signal.name", "approved", "kagzi.run.external_id", "x",
		"messaging.operation.name", "signal")
	if err := k.Client.Signal(k.Ctx, kagzi.ID("y"), kit.Approved.With("")); err == nil {
		t.Error("a signal to nobody is stored")
	}
	p.wantPoints("kagzi.signals", map[string]float64{"signal.name=approved": 1, "error.type=not_found " +
		"signal.name=approved": 1})
}

// The headers of a run never become too many because of its trace.
func TestFullHeaders(t *testing.T) {
	k, p := newKit(t)
	wf := kagzi.Define[string, string]("wf")
	many := kagzi.Headers{}
	for i := range 64 {
		many[fmt.Sprint("h", i)] = "x"
	}
	large := kagzi.Headers{"h": strings.Repeat("x", 16<<10-300)}
	for name, headers := range map[string]kagzi.Headers{"many": many, "large": large} {
		ctx := withBaggage(t, k.Ctx, "big", strings.Repeat("b", 1000))
		run, err := kagzi.Start(ctx, k.Client, wf, "", headers)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if stored := k.InfoOf(run.ID()).Headers; stored["baggage"] != "" ||
			(stored["traceparent"] != "") != (name == "large") {
			t.Errorf("%s: %d headers are stored, with baggage %q", name, len(stored), stored["baggage"])
		}
	}
	_ = p
}

// A context that was inherited from a run of long ago is linked, although this run executes at once.
func TestInheritedContextIsLinked(t *testing.T) {
	t.Parallel()
	p := newProbe(t, kagziotel.Config{})
	execute := p.tel.Interceptor().Execute
	ctx, old := p.tracer.Start(t.Context(), "old")
	starts := []*kagzi.StartCall{{Workflow: "wf"}}
	if err := p.tel.Interceptor().Start(ctx, starts, func(context.Context) error { return nil }); err != nil {
		t.Fatal(err)
	}
	old.End()
	headers := starts[0].Headers
	for _, tt := range []struct {
		at     time.Duration
		age    time.Duration
		linked bool
	}{
		{0, 0, false},
		{0, time.Second, false},
		{0, time.Minute, true},
		{-time.Hour, 0, true},
		{-time.Hour, time.Hour, true},
	} {
		p.spans.Reset()
		h := maps.Clone(headers)
		ms, err := strconv.ParseInt(h["kagzi-traced-at"], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		h["kagzi-traced-at"] = fmt.Sprint(ms + tt.at.Milliseconds())
		if err := execute(t.Context(), kagzi.Execution{Workflow: "wf", First: true, Age: tt.age, Headers: h},
			func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if s := p.one("execute wf"); s.Parent.IsValid() == tt.linked || (len(s.Links) == 1) != tt.linked {
			t.Errorf("traced %v ago, age %v: parent %v, links %v", -tt.at, tt.age, s.Parent.IsValid(), s.Links)
		}
	}
}

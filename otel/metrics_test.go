package kagziotel_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
	kagziotel "github.com/kagzi/kagzi/otel"
)

func TestMetrics(t *testing.T) {
	k, p := newKit(t)
	stopObserving, err := p.tel.Observe(k.Client)
	if err != nil {
		t.Fatal(err)
	}
	wf := kagzi.Define[string, string]("wf")
	begun, goOn := make(chan struct{}), make(chan struct{})
	serve(k, kagzi.WorkerConfig{MaxConcurrent: 3}, wf, func(ctx kagzi.Context, mode string) (string, error) {
		switch mode {
		case "fail":
			return "", kind.Unavailable
		case "sleep":
			return "", kagzi.Sleep(ctx, "long", time.Hour)
		}
		return kagzi.Step(ctx, "step", func(context.Context) (string, error) {
			close(begun)
			await.Opened(t, goOn)
			return "", nil
		})
	})
	run := kit.Begin(k, wf, "step", kagzi.ID("x"))
	await.Receive(t, begun)
	if again := kit.Begin(k, wf, "step", kagzi.ID("x")); !again.Existed() {
		t.Error("the second start of the ID has started another run")
	}
	p.wantPoints("kagzi.worker.slots", map[string]float64{
		"queue.name=default slot.state=used": 1,
		"queue.name=default slot.state=free": 2,
	})
	close(goOn)
	kit.ResultOf(k, run)
	kit.FailureOf(k, kit.Begin(k, wf, "fail"), kagzi.StatusFailed)
	sleeps := kit.Begin(k, wf, "sleep")
	k.WaitStatus(sleeps.ID(), kagzi.StatusSleeping)
	k.Cancel(sleeps.ID())

	p.wantPoints("kagzi.run.starts", map[string]float64{
		"start.origin=call workflow.name=wf": 3, "run.existed=true start.origin=call workflow.name=wf": 1,
	})
	p.wantPoints("kagzi.run.duration", map[string]float64{
		"queue.name=default run.status=COMPLETED workflow.name=wf":                     1,
		"error.type=unavailable queue.name=default run.status=FAILED workflow.name=wf": 1,
		"queue.name=default run.status=CANCELLED workflow.name=wf":                     1,
	})
	p.wantPoints("kagzi.execution.duration", map[string]float64{
		"outcome=completed queue.name=default workflow.name=wf":                     1,
		"error.type=unavailable outcome=failed queue.name=default workflow.name=wf": 1,
		"outcome=suspended queue.name=default workflow.name=wf":                     1,
	})
	p.wantPoints("kagzi.execution.delay", map[string]float64{"queue.name=default workflow.name=wf": 3})
	p.wantPoints("kagzi.step.duration", map[string]float64{"outcome=completed step.name=step workflow.name=wf": 1})
	for _, name := range []string{"kagzi.flush.duration", "kagzi.flush.writes"} {
		if got := p.points(name); len(got) != 1 || got[""] < 3 {
			t.Errorf("%s is %v", name, got)
		}
	}
	if err := k.Client.Signal(k.Ctx, run, kit.Approved.With("")); err == nil {
		t.Error("a run that is over takes a signal")
	}
	p.wantPoints("kagzi.signals", map[string]float64{"error.type=bad_request signal.name=approved": 1})
	checkReadme(t, p)

	if err := stopObserving(); err != nil {
		t.Error(err)
	}
	if got := p.points("kagzi.worker.slots"); len(got) > 0 {
		t.Errorf("slots are observed after stop: %v", got)
	}
}

// checkReadme fails the test unless the README's tables list each metric with its unit, each attribute of metrics, and
// no other metric.
func checkReadme(t *testing.T, p *probe) {
	t.Helper()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, metrics, _ := strings.Cut(string(readme), "\n## Metrics\n")
	metrics, _, _ = strings.Cut(metrics, "\n## ")
	rows := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(kagzi[._a-z]+)` \\|(.*)\\|$").FindAllStringSubmatch(metrics, -1) {
		rows[m[1]] = m[2]
	}
	var all metricdata.ResourceMetrics
	if err := p.reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			seen[m.Name] = true
			if row := rows[m.Name]; !strings.Contains(row, "`"+m.Unit+"`") {
				t.Errorf("README: the row of %s, unit %s, is %q", m.Name, m.Unit, row)
			}
		}
	}
	for name := range rows {
		if !seen[name] {
			t.Errorf("README: there is no metric %s", name)
		}
	}
}

// Each attribute of a span is in the README.
func TestReadmeListsAttributes(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("names.go")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	keys := regexp.MustCompile(`attribute\.Key\("([^"]+)"\)`).FindAllStringSubmatch(string(source), -1)
	if len(keys) < 20 {
		t.Fatalf("names.go has %d attributes", len(keys))
	}
	for _, m := range keys {
		if !strings.Contains(string(readme), "`"+m[1]+"`") {
			t.Errorf("README lacks `%s`", m[1])
		}
	}
	outcomes := regexp.MustCompile(`(?m)^\t[a-z]+ += "([a-z]+)"`).FindAllStringSubmatch(string(source), -1)
	if len(outcomes) != 8 {
		t.Fatalf("names.go has the outcomes %v", outcomes)
	}
	for _, m := range outcomes {
		if !strings.Contains(string(readme), "`"+m[1]+"`") {
			t.Errorf("README lacks the outcome `%s`", m[1])
		}
	}
}

// Names that are made from data do not make a metric grow.
func TestMetricsAreBounded(t *testing.T) {
	t.Parallel()
	p := newProbe(t, kagziotel.Config{MaxNames: 3})
	step := p.tel.Interceptor().Step
	for i := range 10 {
		name := []string{"a", "b/0/c#2", "b/1/c", fmt.Sprint("order-", i)}
		for _, n := range name {
			if err := step(t.Context(), kagzi.StepInfo{Workflow: "wf", Step: n, Attempt: 1},
				func(context.Context) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
	}
	p.wantPoints("kagzi.step.duration", map[string]float64{
		"outcome=completed step.name=a workflow.name=wf": 10, "outcome=completed step.name=b/*/c workflow.name=wf": 20,
		"outcome=completed step.name=order-0 workflow.name=wf": 1,
		"outcome=completed step.name=_OTHER workflow.name=wf":  9,
	})
	if got := attr(p.named("step b/*/c")[0], "kagzi.step.name"); got != "b/0/c#2" {
		t.Errorf("the span has the step %s", got)
	}
}

func TestMisuse(t *testing.T) {
	t.Parallel()
	if _, err := kagziotel.New(kagziotel.Config{MaxNames: -1}); err == nil ||
		!strings.Contains(err.Error(), "MaxNames") {
		t.Errorf("a negative MaxNames: %v", err)
	}
	var none *kagziotel.Telemetry
	if i := none.Interceptor(); i.Start != nil || i.Execute != nil || i.Flushed != nil {
		t.Error("a nil Telemetry wraps something")
	}
	if _, err := none.Observe(nil); err == nil {
		t.Error("a nil Telemetry observes")
	}
	tel, err := kagziotel.New(kagziotel.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tel.Observe(nil); err == nil || !strings.Contains(err.Error(), "NewClient") {
		t.Errorf("a nil client is observed: %v", err)
	}
	if err := tel.Interceptor().Start(t.Context(), nil, func(context.Context) error { return nil }); err != nil {
		t.Error(err)
	}
}

// The README shows the program of folder example, which is compiled.
func TestReadmeShowsTheExample(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("example/main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(program), "\n") // without its comment
	if !strings.Contains(string(readme), "```go\n"+code+"```") {
		t.Error("the README does not show example/main.go")
	}
}

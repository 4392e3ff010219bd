package scrape

import (
	"context"
	"encoding/json"
	"io"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.yaml.in/yaml/v3"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
	kagziotel "github.com/kagzi/kagzi/otel"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// The exporter for Prometheus gives the metrics and their attributes the names that the expressions have.
func TestScrape(t *testing.T) {
	t.Parallel()
	scraped := scrape(t)
	named := regexp.MustCompile(`\bkagzi_\w+|\berror_type\b`)
	seen := 0
	for _, e := range expressions(t) {
		for _, name := range named.FindAllString(e, -1) {
			seen++
			if !regexp.MustCompile(`(?m)(^|[{,])` + name + `[ {=]`).MatchString(scraped) {
				t.Errorf("there is no %s: %s", name, e)
			}
		}
	}
	if seen < 50 {
		t.Errorf("the expressions have %d names", seen)
	}
	if t.Failed() {
		t.Log(scraped)
	}
}

// scrape lets a worker and a caller report all metrics, and returns what Prometheus reads.
func scrape(t *testing.T) string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry))
	if err != nil {
		t.Fatal(err)
	}
	tel, err := kagziotel.New(kagziotel.Config{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))})
	if err != nil {
		t.Fatal(err)
	}
	k := kit.NewWith(t, kagzi.ClientConfig{Interceptors: []kagzi.Interceptor{tel.Interceptor()}})
	if _, err := tel.Observe(k.Client); err != nil {
		t.Fatal(err)
	}
	wf := kagzi.Define[string, string]("wf")
	kit.Serve(k, wf, func(ctx kagzi.Context, mode string) (string, error) {
		if mode == "sleep" {
			return "", kagzi.Sleep(ctx, "long", time.Hour)
		}
		return kagzi.Step(ctx, "step", func(context.Context) (string, error) {
			return "", kagzi.Permanent(kind.Unavailable)
		})
	})
	run := kit.Begin(k, wf, "fail")
	kit.FailureOf(k, run, kagzi.StatusFailed)
	sleeps := kit.Begin(k, wf, "sleep")
	k.WaitStatus(sleeps.ID(), kagzi.StatusSleeping)
	if err := k.Client.Signal(k.Ctx, run, kit.Approved.With("")); err == nil {
		t.Error("a run that is over takes a signal")
	}
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.Code != 200 {
		t.Fatal(answer.Code, string(body), err)
	}
	return string(body)
}

// expressions returns those of the board and of the rules, whose files parse.
func expressions(t *testing.T) (all []string) {
	t.Helper()
	var board struct {
		Panels     []struct{ Targets []struct{ Expr string } }
		Templating struct{ List []struct{ Definition string } }
	}
	if err := json.Unmarshal(read(t, "../../grafana.json"), &board); err != nil {
		t.Fatal(err)
	}
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			all = append(all, target.Expr)
		}
	}
	for _, v := range board.Templating.List {
		all = append(all, v.Definition)
	}
	var rules struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(read(t, "../../prometheus-rules.yml"))))
	decoder.KnownFields(true)
	if err := decoder.Decode(&rules); err != nil {
		t.Fatal(err)
	}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			all = append(all, r.Expr)
			if _, err := time.ParseDuration(r.For); err != nil || r.Alert == "" ||
				!slices.Contains([]string{"critical", "warning"}, r.Labels["severity"]) || len(r.Annotations) != 3 {
				t.Errorf("%+v: %v", r, err)
			}
		}
	}
	return all
}

// The example for KEDA on the page is YAML. Package inspect tests its query.
func TestScaledObject(t *testing.T) {
	t.Parallel()
	example := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindSubmatch(read(t, "../../../docs/monitoring.md"))
	if example == nil {
		t.Fatal("the page has no example")
	}
	var object struct {
		Kind string
		Spec struct {
			Triggers []struct {
				Type     string
				Metadata map[string]any
			}
		}
	}
	if err := yaml.Unmarshal(example[1], &object); err != nil {
		t.Fatal(err)
	}
	if object.Kind != "ScaledObject" || len(object.Spec.Triggers) != 1 || object.Spec.Triggers[0].Type != "postgresql" {
		t.Fatalf("%+v", object)
	}
	metadata := map[string]string{}
	for key, value := range object.Spec.Triggers[0].Metadata {
		text, ok := value.(string)
		if !ok {
			t.Errorf("%s is %v: KEDA takes texts", key, value)
		}
		metadata[key] = text
	}
	for _, key := range []string{
		"host", "port", "dbName", "sslmode", "userName", "passwordFromEnv", "targetQueryValue", "query",
	} {
		if metadata[key] == "" {
			t.Errorf("%s is missing", key)
		}
	}
	if !strings.HasPrefix(metadata["query"], "WITH ") || !strings.HasSuffix(metadata["query"], ")\n") {
		t.Errorf("the query is cut: %s", metadata["query"])
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

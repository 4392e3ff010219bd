package kagziotel_test

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
	kagziotel "github.com/kagzi/kagzi/otel"
)

var update = flag.Bool("update", false, "write grafana.json and prometheus-rules.yml")

// The board and the rules are what the tests make of the names in names.go.
func TestGeneratedFiles(t *testing.T) {
	t.Parallel()
	for name, make := range kagziotel.Files {
		want := make()
		if *update {
			if err := os.WriteFile(name, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := read(t, name); got != want {
			t.Errorf("%s is not what its names make: go test -run TestGeneratedFiles -update", name)
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Expressions name only series that there are, with labels that these have, and the board shows every metric.
func TestExpressionsNameWhatIsExported(t *testing.T) {
	t.Parallel()
	exported := exportAll(t)
	shown := map[string]bool{}
	for _, e := range expressions(t) {
		for _, wrong := range check(e, exported, shown) {
			t.Errorf("%s: %s", wrong, e)
		}
	}
	for name, series := range kagziotel.MetricNames() {
		if !slices.ContainsFunc(series, func(s string) bool { return shown[s] }) {
			t.Errorf("neither the board nor a rule shows %s", name)
		}
	}
	for wrong, e := range map[string]string{
		"there is no kagzi_run_start_total": `sum by (job) (rate(kagzi_run_start_total{job=~"$job"}[5m]))`,
		"there is no kagzi_run_duration":    `rate(kagzi_run_duration[5m])`,
		"kagzi_queue_due has no label kagzi_run_status": `max by (kagzi_queue_name) (kagzi_queue_due{` +
			`kagzi_run_status="FAILED"})`,
		"kagzi_flush_writes_sum has no label kagzi_queue_name": `sum by (kagzi_queue_name) (kagzi_flush_writes_sum)`,
		"kagzi_queue_due has no label le":                      `sum by (le) (kagzi_queue_due)`,
		"kagzi_queue_due is no counter":                        `rate(kagzi_queue_due[5m])`,
		"kagzi_run_starts_total is a counter":                  `sum by (job) (kagzi_run_starts_total)`,
		"no metric":                                            `up == 0`,
	} {
		if got := check(e, exported, shown); !slices.Contains(got, wrong) {
			t.Errorf("%s has the faults %q, want %q", e, got, wrong)
		}
	}
}

// exportAll lets Kagzi report every metric with every attribute, and returns the labels of each series.
func exportAll(t *testing.T) map[string][]string {
	p := newProbe(t, kagziotel.Config{})
	k := kit.NewWith(t, kagzi.ClientConfig{Interceptors: []kagzi.Interceptor{p.tel.Interceptor()}})
	if _, err := p.tel.Observe(k.Client); err != nil {
		t.Fatal(err)
	}
	wf := kagzi.Define[string, string]("wf")
	serve(k, kagzi.WorkerConfig{}, wf, func(ctx kagzi.Context, mode string) (string, error) {
		if mode == "sleep" {
			return "", kagzi.Sleep(ctx, "long", time.Hour)
		}
		return kagzi.Step(ctx, "step", func(context.Context) (string, error) {
			return "", kagzi.Permanent(kind.Unavailable)
		})
	})
	run := kit.Begin(k, wf, "fail", kagzi.ID("x"))
	kit.FailureOf(k, run, kagzi.StatusFailed)
	sleeps := kit.Begin(k, wf, "sleep")
	k.WaitStatus(sleeps.ID(), kagzi.StatusSleeping)
	if err := k.Client.Signal(k.Ctx, run, kit.Approved.With("")); err == nil {
		t.Error("a run that is over takes a signal")
	}
	p.tel.Interceptor().Flushed(kagzi.Flush{Err: kind.Database}) // a database that fails would stop the run
	if err := p.tel.Interceptor().Start(t.Context(), []*kagzi.StartCall{{Workflow: "wf"}},
		func(context.Context) error { return kind.Database }); err == nil {
		t.Error("a start that fails returns no error")
	}

	var all metricdata.ResourceMetrics
	if err := p.reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	names, exported := kagziotel.MetricNames(), map[string][]string{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			labels := labelsIn(t, m)
			for _, series := range names[m.Name] {
				exported[series] = append(slices.Clone(labels), "job")
				if strings.HasSuffix(series, "_bucket") {
					exported[series] = append(exported[series], "le")
				}
			}
			if names[m.Name] == nil {
				t.Errorf("MetricNames lacks %s", m.Name)
			}
			delete(names, m.Name)
		}
	}
	if len(names) > 0 {
		t.Errorf("not exported: %v", names)
	}
	return exported
}

// labelsIn returns the labels that any point of the metric has.
func labelsIn(t *testing.T, m metricdata.Metrics) (labels []string) {
	t.Helper()
	text, err := json.Marshal(m.Data)
	if err != nil {
		t.Fatal(err)
	}
	var data struct {
		DataPoints []struct{ Attributes []struct{ Key string } }
	}
	if err := json.Unmarshal(text, &data); err != nil {
		t.Fatal(err)
	}
	for _, p := range data.DataPoints {
		for _, a := range p.Attributes {
			labels = append(labels, strings.ReplaceAll(a.Key, ".", "_"))
		}
	}
	return labels
}

// expressions returns those of both files, also the labels by which the board's variables ask, as a sum by them.
func expressions(t *testing.T) (all []string) {
	t.Helper()
	var board struct {
		Panels []struct {
			Type, Title string
			Targets     []struct{ Expr string }
		}
		Templating struct{ List []struct{ Definition string } }
	}
	if err := json.Unmarshal([]byte(read(t, "grafana.json")), &board); err != nil {
		t.Fatal(err)
	}
	for _, p := range board.Panels {
		if (p.Type == "row") != (len(p.Targets) == 0) {
			t.Errorf("the panel %s has %d expressions", p.Title, len(p.Targets))
		}
		for _, target := range p.Targets {
			all = append(all, target.Expr)
		}
	}
	values := regexp.MustCompile(`^label_values\((?:\{__name__=~"([a-z_|]+)"\}|([a-z_]+)), ([a-z_]+)\)$`)
	for _, v := range board.Templating.List {
		m := values.FindStringSubmatch(v.Definition)
		if m == nil {
			t.Fatalf("the variable asks %s", v.Definition)
		}
		for name := range strings.SplitSeq(m[1]+m[2], "|") {
			if strings.HasSuffix(name, "_total") {
				name = "rate(" + name + "[5m])"
			}
			all = append(all, "sum by ("+m[3]+") ("+name+")")
		}
	}
	for _, m := range regexp.MustCompile(`expr: >-\n((?:          .*\n)+)`).FindAllStringSubmatch(
		read(t, "prometheus-rules.yml"), -1) {
		all = append(all, strings.Join(strings.Fields(m[1]), " "))
	}
	if len(all) < 30 {
		t.Fatalf("only %d expressions", len(all))
	}
	return all
}

var (
	kept     = regexp.MustCompile(`\b(?:by|on) \(([^)]*)\)`)
	selector = regexp.MustCompile(`(rate|increase)?\(?\b(kagzi_\w+)(?:\{([^}]*)\})?( unless| offset)?`)
	matcher  = regexp.MustCompile(`(\w+)(?:=~|!~|!=|=)"`)
)

// check returns what is wrong with an expression. It adds the series that the expression names to shown.
func check(e string, exported map[string][]string, shown map[string]bool) (wrong []string) {
	var by []string
	for _, m := range kept.FindAllStringSubmatch(e, -1) {
		by = append(by, strings.Split(m[1], ", ")...)
	}
	selectors := selector.FindAllStringSubmatch(kept.ReplaceAllString(e, ""), -1)
	if selectors == nil {
		wrong = append(wrong, "no metric")
	}
	for _, s := range selectors {
		name, labels := s[2], exported[s[2]]
		if labels == nil {
			wrong = append(wrong, "there is no "+name)
			continue
		}
		shown[name] = true
		compared := s[1] != "" || s[4] != "" // what grows means something only beside what it was
		if grows := regexp.MustCompile(`_(total|bucket|sum|count)$`).MatchString(name); grows != compared {
			wrong = append(wrong, name+map[bool]string{true: " is a counter", false: " is no counter"}[grows])
		}
		asked := slices.Clone(by)
		for _, m := range matcher.FindAllStringSubmatch(s[3], -1) {
			asked = append(asked, m[1])
		}
		for _, label := range asked {
			if !slices.Contains(labels, label) {
				wrong = append(wrong, name+" has no label "+label)
			}
		}
	}
	return wrong
}

// Each rule says what to do, and leads to a heading of a page.
func TestRulesLeadSomewhere(t *testing.T) {
	t.Parallel()
	text := read(t, "prometheus-rules.yml")
	rules := regexp.MustCompile(`(?m)^      - alert: (\w+)\n`).FindAllStringSubmatchIndex(text, -1)
	if len(rules) < 5 {
		t.Fatalf("%d rules", len(rules))
	}
	listed := read(t, "../docs/monitoring.md")
	for i, m := range rules {
		name, rest := text[m[2]:m[3]], text[m[1]:]
		if i+1 < len(rules) {
			rest = text[m[1]:rules[i+1][0]]
		}
		whole := regexp.MustCompile(`^        expr: >-\n(?:          .+\n)+        for: \d+[mh]\n        labels:\n` +
			`          severity: (critical|warning)\n        annotations:\n          summary: ".+"\n` +
			`          description: ".+\."\n          runbook_url: \S+\n$`).FindStringSubmatch(rest)
		if whole == nil {
			t.Errorf("%s is\n%s", name, rest)
			continue
		}
		_, url, _ := strings.Cut(rest, "runbook_url: https://github.com/kagzi/kagzi/blob/main/")
		if wrong := broken(strings.TrimSpace(url)); wrong != "" {
			t.Errorf("%s leads to %s", name, wrong)
		}
		if row := "| `" + name + "` | " + whole[1] + " |"; !strings.Contains(listed, row) {
			t.Errorf("docs/monitoring.md lacks %s", row)
		}
	}
	for _, url := range []string{"docs/Nothing.md", "docs/health.md#nothing", ""} {
		if broken(url) == "" {
			t.Errorf("%q leads somewhere", url)
		}
	}
}

// broken returns what is wrong with a link to a page and a heading; empty if nothing is.
func broken(link string) string {
	page, fragment, _ := strings.Cut(link, "#")
	text, err := os.ReadFile("../" + page)
	if err != nil || page == "" {
		return "no page: " + link
	}
	if fragment == "" {
		return ""
	}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(string(text), -1) {
		anchor := regexp.MustCompile(`[^\p{L}\p{N}_ -]`).ReplaceAllString(strings.ToLower(m[1]), "")
		if strings.ReplaceAll(anchor, " ", "-") == fragment {
			return ""
		}
	}
	return "no heading: " + link
}

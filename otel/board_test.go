package kagziotel

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"
)

// The labels of expressions.
var (
	byWorkflow = prometheusLabel(attrWorkflow)
	byQueue    = prometheusLabel(attrQueue)
	byStep     = prometheusLabel(attrStep)
	byStatus   = prometheusLabel(attrStatus)
	byOutcome  = prometheusLabel(attrOutcome)
	byKind     = prometheusLabel(attrErrorType)
	byOrigin   = prometheusLabel(attrOrigin)
	bySignal   = prometheusLabel(attrSignal)
	bySlot     = prometheusLabel(attrSlot)
)

// byJob is the label that Prometheus gives to a service.
const byJob = "job"

// is is a matcher for one value of a label, isNot for all others.
func is(key attribute.Key, value string) string {
	return fmt.Sprintf("%s=%q", prometheusLabel(key), value)
}

func isNot(key attribute.Key, value string) string {
	return fmt.Sprintf("%s!=%q", prometheusLabel(key), value)
}

// A source writes expressions over a window of time, about the series that its matchers select.
type source struct {
	window   string
	matchers []string
}

// with returns the source for what more matchers select.
func (s source) with(matchers ...string) source {
	s.matchers = slices.Concat(s.matchers, matchers)
	return s
}

// series selects series of a metric: suffix is that of a part of a histogram.
func (s source) series(i instrument, suffix string) string {
	name := prometheusName(i) + suffix
	if !slices.Contains(prometheusNames(i), name) {
		panic("there is no " + name)
	}
	if len(s.matchers) == 0 {
		return name
	}
	return name + "{" + strings.Join(s.matchers, ", ") + "}"
}

// grown sums up what the counts of a metric do in the window: fn is rate or increase.
func (s source) grown(fn string, i instrument, suffix string, by ...string) string {
	return fmt.Sprintf("%s (%s(%s[%s]))", over("sum", by), fn, s.series(i, suffix), s.window)
}

// rate is how often in a second something happened.
func (s source) rate(i instrument, by ...string) string {
	suffix := ""
	if i.form == histogram {
		suffix = "_count"
	}
	return s.grown("rate", i, suffix, by...)
}

// quantile is a quantile of a histogram.
func (s source) quantile(q float64, i instrument, by ...string) string {
	return fmt.Sprintf("histogram_quantile(%v, %s)", q, s.grown("rate", i, "_bucket", append([]string{"le"}, by...)...))
}

// most is a value that all processes report alike.
func (s source) most(i instrument, by ...string) string {
	return fmt.Sprintf("%s (%s)", over("max", by), s.series(i, ""))
}

// over begins an expression that aggregates series, and keeps these labels.
func over(fn string, by []string) string {
	if len(by) == 0 {
		return fn
	}
	return fn + " by (" + strings.Join(by, ", ") + ")"
}

// A panel is one chart of the board, as wide as a third of it.
type panel struct {
	title, says, unit string
	lines             []line
}

// A line is an expression, and how its series are named.
type line struct{ expr, legend string }

// A row is panels with a title.
type row struct {
	title  string
	panels []panel
}

// legend names a series by its labels.
func legend(labels ...string) string {
	for i, l := range labels {
		labels[i] = "{{" + l + "}}"
	}
	return strings.Join(labels, " ")
}

// Units of Grafana.
const (
	perSecond = "cps"
	seconds   = "s"
	runs      = "short"
	share     = "percentunit"
)

func rows() []row {
	all := source{window: "$__rate_interval", matchers: []string{byJob + `=~"$job"`}}
	s := all.with(byWorkflow + `=~"$workflow"`)
	return []row{
		{"Runs", runPanels(s)},
		{"Queues and workers", queuePanels(s, all)},
		{"Health", healthPanels(s, all)},
		{"Database", databasePanels(all)},
	}
}

func runPanels(s source) []panel {
	return []panel{
		{
			"Starts", "Calls that started a run, or found its ID in use, by what started it.", perSecond,
			[]line{{s.with(is(attrErrorType, "")).rate(runStarts, byWorkflow, byOrigin), legend(byWorkflow, byOrigin)}},
		},
		{
			"Ends", "Runs that ended, by status.", perSecond,
			[]line{{s.rate(runDuration, byWorkflow, byStatus), legend(byWorkflow, byStatus)}},
		},
		{
			"Failed runs", "The share of the runs that ended which failed.", share,
			[]line{{
				s.with(is(attrStatus, "FAILED")).rate(runDuration, byWorkflow) + " / " +
					s.rate(runDuration, byWorkflow),
				legend(byWorkflow),
			}},
		},
		{
			"Duration of runs", "From the start to the end, sleeps and waits included: the slowest of twenty.", seconds,
			[]line{{s.quantile(0.95, runDuration, byWorkflow), legend(byWorkflow)}},
		},
		{
			"Duration of executions", "One execution, between two waits: the slowest of twenty.", seconds,
			[]line{{s.quantile(0.95, executionDuration, byWorkflow), legend(byWorkflow)}},
		},
		{
			"Duration of steps", "One attempt of a step: the slowest of twenty.", seconds,
			[]line{{s.quantile(0.95, stepDuration, byWorkflow, byStep), legend(byWorkflow, byStep)}},
		},
	}
}

// queuePanels are about the numbers of the namespace, which all processes report alike, and about slots.
func queuePanels(s, all source) []panel {
	backlog := func(i instrument) []line {
		return []line{{
			over("sum", []string{byQueue}) + " (" + s.most(i, byQueue, byWorkflow) + ")", legend(byQueue),
		}}
	}
	return []panel{
		{
			"Age of the first due run", "How long it has been due, and no worker has executed it. Workers keep up " +
				"while this is small.", seconds,
			[]line{{s.most(queueDueAge, byQueue, byWorkflow), legend(byQueue, byWorkflow)}},
		},
		{
			"Due runs", "Runs whose time has come and that no worker executes. Some thousands may be more.", runs,
			backlog(queueDue),
		},
		{
			"Time in the queue", "How long a run was due before a worker executed it: the slowest of twenty.", seconds,
			[]line{{s.quantile(0.95, executionDelay, byQueue), legend(byQueue)}},
		},
		{
			"Slots", "Slots of the workers, used and free. A run under way holds one.", runs,
			[]line{{
				over("sum", []string{byQueue, bySlot}) + " (" + all.series(workerSlots, "") + ")",
				legend(byQueue, bySlot),
			}},
		},
		{"Sleeping runs", "Runs that sleep or wait.", runs, backlog(queueSleeping)},
		{"Paused runs", "Runs that are paused, and due ones that a pause stops.", runs, backlog(queuePaused)},
	}
}

func healthPanels(s, all source) []panel {
	return []panel{
		{
			"Failures of runs", "Runs that failed, by kind.", perSecond,
			[]line{{
				s.with(is(attrStatus, "FAILED")).rate(runDuration, byWorkflow, byKind), legend(byWorkflow, byKind),
			}},
		},
		{
			"Failures of steps", "Attempts of steps that failed, by kind. Most are tried again.", perSecond,
			[]line{{
				s.with(is(attrOutcome, failed)).rate(stepDuration, byWorkflow, byStep, byKind),
				legend(byWorkflow, byStep, byKind),
			}},
		},
		{
			"Executions that did not complete", "lost: another worker may have the run. retried: another attempt " +
				"follows. returned: the worker stopped.", perSecond,
			[]line{{
				s.with(isNot(attrOutcome, completed), isNot(attrOutcome, suspended)).
					rate(executionDuration, byWorkflow, byOutcome),
				legend(byWorkflow, byOutcome),
			}},
		},
		{
			"Starts that failed", "Calls that returned an error instead of a run, by kind.", perSecond,
			[]line{{
				s.with(isNot(attrErrorType, "")).rate(runStarts, byWorkflow, byKind), legend(byWorkflow, byKind),
			}},
		},
		{
			"Messages", "Messages sent to runs, and those that were refused, by kind.", perSecond,
			[]line{{all.rate(signalsSent, bySignal, byKind), legend(bySignal, byKind)}},
		},
	}
}

func databasePanels(all source) []panel {
	return []panel{
		{
			"Duration of a transaction", "One that stores what runs have recorded: the median, and the slowest of a " +
				"hundred.", seconds,
			[]line{
				{all.quantile(0.5, flushDuration), "median"},
				{all.quantile(0.99, flushDuration), "99 %"},
			},
		},
		{
			"Transactions", "Transactions that store what runs have recorded, and those that failed, by kind.",
			perSecond,
			[]line{
				{all.with(is(attrErrorType, "")).rate(flushDuration), "stored"},
				{all.with(isNot(attrErrorType, "")).rate(flushDuration, byKind), legend(byKind)},
			},
		},
		{
			"Writes in a transaction", "How many records share one, on average.", runs,
			[]line{{
				all.grown("rate", flushWrites, "_sum", byJob) + " / " + all.grown("rate", flushWrites, "_count", byJob),
				legend(byJob),
			}},
		},
	}
}

// object is one of JSON. Its keys are sorted.
type object = map[string]any

// datasource stands for the Prometheus that a user names when Grafana imports the board.
var datasource = object{"type": "prometheus", "uid": "${DS_PROMETHEUS}"}

// board returns a dashboard for Grafana.
func board() string {
	var panels []object
	y := 0
	for _, r := range rows() {
		panels = append(panels, object{
			"id": len(panels) + 1, "type": "row", "title": r.title, "collapsed": false, "panels": []object{},
			"gridPos": object{"x": 0, "y": y, "w": 24, "h": 1},
		})
		for i, p := range r.panels {
			panels = append(panels, p.chart(len(panels)+1, i%3*8, y+1+i/3*8))
		}
		y += 1 + (len(r.panels)+2)/3*8
	}
	return encode(object{
		"__inputs": []object{{
			"name": "DS_PROMETHEUS", "label": "Prometheus", "type": "datasource", "pluginId": "prometheus",
			"pluginName": "Prometheus", "description": "where the metrics of Kagzi are",
		}},
		"__requires": []object{
			{"type": "grafana", "id": "grafana", "name": "Grafana", "version": "10.0.0"},
			{"type": "datasource", "id": "prometheus", "name": "Prometheus", "version": "1.0.0"},
			{"type": "panel", "id": "timeseries", "name": "Time series", "version": ""},
		},
		"title": "Kagzi", "uid": "kagzi", "description": "Runs, queues and workers of Kagzi: see docs/monitoring.md.",
		"tags": []string{"kagzi"}, "schemaVersion": 39, "version": 1, "editable": true, "graphTooltip": 1,
		"refresh": "30s", "time": object{"from": "now-3h", "to": "now"}, "timezone": "",
		"annotations": object{"list": []object{}}, "links": []object{}, "panels": panels,
		"templating": object{"list": []object{
			variable("job", "Service", fmt.Sprintf(`label_values({__name__=~"%s|%s"}, %s)`,
				prometheusName(runStarts), prometheusName(workerSlots), byJob)),
			variable("workflow", "Workflow", fmt.Sprintf("label_values(%s, %s)",
				prometheusName(runStarts), byWorkflow)),
		}},
	})
}

// variable returns one that a user may set above the board.
func variable(name, label, query string) object {
	return object{
		"name": name, "label": label, "type": "query", "datasource": datasource, "definition": query,
		"query": object{"query": query, "refId": name}, "refresh": 2, "sort": 1, "multi": true, "includeAll": true,
		"allValue": ".*", "current": object{"selected": true, "text": []string{"All"}, "value": []string{"$__all"}},
	}
}

// chart returns the panel at a place.
func (p panel) chart(id, x, y int) object {
	var targets []object
	for i, l := range p.lines {
		targets = append(targets, object{
			"refId": string(rune('A' + i)), "datasource": datasource, "expr": l.expr, "legendFormat": l.legend,
			"editorMode": "code", "range": true,
		})
	}
	return object{
		"id": id, "type": "timeseries", "title": p.title, "description": p.says, "datasource": datasource,
		"gridPos": object{"x": x, "y": y, "w": 8, "h": 8}, "targets": targets,
		"fieldConfig": object{
			"defaults": object{
				"unit": p.unit, "min": 0, "custom": object{"fillOpacity": 10, "showPoints": "never"},
			},
			"overrides": []object{},
		},
		"options": object{
			"legend":  object{"displayMode": "list", "placement": "bottom", "showLegend": true},
			"tooltip": object{"mode": "multi", "sort": "desc"},
		},
	}
}

// encode returns JSON for people.
func encode(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		panic(err)
	}
	return b.String()
}

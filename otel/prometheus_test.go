package kagziotel

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
)

// prometheusName returns the name that Prometheus has for a metric: that of its receiver for OTLP, of the Collector's
// exporters and of OpenTelemetry's exporter for Go, each as it is unless it is told to translate otherwise. The module
// in test/scrape compares it with that exporter.
func prometheusName(i instrument) string {
	words := strings.FieldsFunc(i.name, func(r rune) bool { return !isLetter(r) })
	// A unit in braces says what is counted, and leaves no word. No word comes twice.
	if unit := map[string]string{"s": "seconds", "By": "bytes", "1": ""}[i.unit]; unit != "" &&
		!slices.Contains(words, unit) {
		words = append(words, unit)
	}
	switch {
	case i.form == counter:
		words = append(slices.DeleteFunc(words, func(w string) bool { return w == "total" }), "total")
	case i.form == gauge && i.unit == "1":
		words = append(slices.DeleteFunc(words, func(w string) bool { return w == "ratio" }), "ratio")
	}
	return strings.Join(words, "_")
}

// prometheusNames returns the names of the series of a metric.
func prometheusNames(i instrument) []string {
	name := prometheusName(i)
	if i.form != histogram {
		return []string{name}
	}
	return []string{name + "_bucket", name + "_sum", name + "_count"}
}

// prometheusLabel returns the name that Prometheus has for an attribute.
func prometheusLabel(key attribute.Key) string {
	return strings.Map(func(r rune) rune {
		if isLetter(r) {
			return r
		}
		return '_'
	}, string(key))
}

func isLetter(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
}

func TestPrometheusName(t *testing.T) {
	t.Parallel()
	for i, want := range map[instrument]string{
		{"kagzi.run.starts", "{run}", counter}:          "kagzi_run_starts_total",
		{"kagzi.runs.total", "{run}", counter}:          "kagzi_runs_total",
		{"kagzi.run.duration", "s", histogram}:          "kagzi_run_duration_seconds",
		{"kagzi.flush.seconds.spent", "s", histogram}:   "kagzi_flush_seconds_spent",
		{"kagzi.busy", "s", counter}:                    "kagzi_busy_seconds_total",
		{"kagzi.flush.writes", "{write}", histogram}:    "kagzi_flush_writes",
		{"kagzi.queue.due_age", "s", gauge}:             "kagzi_queue_due_age_seconds",
		{"kagzi.worker.slots", "{slot}", gauge}:         "kagzi_worker_slots",
		{"kagzi.inputs.size", "By", gauge}:              "kagzi_inputs_size_bytes",
		{"kagzi.worker.use", "1", gauge}:                "kagzi_worker_use_ratio",
		{"kagzi.worker.ratio.used", "1", gauge}:         "kagzi_worker_used_ratio",
		{"kagzi.worker.uses", "1", counter}:             "kagzi_worker_uses_total",
		{"kagzi..queue.__due", "{run}", gauge}:          "kagzi_queue_due",
		{name: "kagzi.queue.paused-ones", form: gauge}:  "kagzi_queue_paused_ones",
		{name: "kagzi.queue.sleeping", form: histogram}: "kagzi_queue_sleeping",
	} {
		if got := prometheusName(i); got != want {
			t.Errorf("%v is %s, want %s", i, got, want)
		}
	}
	if got := fmt.Sprint(prometheusNames(queueDue), prometheusNames(flushWrites)); got !=
		"[kagzi_queue_due] [kagzi_flush_writes_bucket kagzi_flush_writes_sum kagzi_flush_writes_count]" {
		t.Error(got)
	}
	if got := prometheusLabel(attrStep); got != "kagzi_step_name" {
		t.Error(got)
	}
}

package ui

import (
	"strings"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
)

const trace = "4bf92f3577b34da6a3ce929d0e0e4736"

// The page of a run leads to the trace within which it was started.
func TestARunLeadsToItsTrace(t *testing.T) {
	k := kit.New(t)
	run := kit.Begin(k, echo, "x", kagzi.Headers{"traceparent": "00-" + trace + "-00f067aa0ba902b7-01"})
	other := kit.Begin(k, echo, "x")
	s := newSite(k, Config{TraceURL: "https://traces.example.com/{trace}?q=a&b={trace}"})
	wantAll(t, "the run", s.mustGet("/runs/"+string(run.ID())), `<dt>Trace</dt>`,
		`href="https://traces.example.com/`+trace+`?q=a&amp;b=`+trace+`" rel="noreferrer"`)
	wantNone(t, "a run without a trace", s.mustGet("/runs/"+string(other.ID())), "<dt>Trace</dt>")
	wantNone(t, "without an address", newSite(k, Config{}).mustGet("/runs/"+string(run.ID())), "<dt>Trace</dt>")
}

// Only the ID of a trace gets into an address.
func TestHeadersThatNameNoTrace(t *testing.T) {
	for _, header := range []string{
		"", "00", "00-" + strings.Repeat("0", 32) + "-00f067aa0ba902b7-01",
		"00-" + strings.ToUpper(trace) + "-00f067aa0ba902b7-01",
		"javascript:alert(1)", "00-../../" + trace[6:] + "-00f067aa0ba902b7-01",
	} {
		if got := traceLinks("https://t/{trace}").of(kagzi.Headers{"traceparent": header}); got != (traceLink{}) {
			t.Errorf("%q: %+v", header, got)
		}
	}
}

func TestAddressesOfTracesAreChecked(t *testing.T) {
	c := kit.New(t).Client
	for _, address := range []string{
		"https://traces.example.com/", "traces/{trace}", "javascript:{trace}", "ftp://host/{trace}", "https:///{trace}",
		"%{trace}",
	} {
		_, err := newDashboard(c, Config{TraceURL: address})
		if err == nil || !strings.Contains(err.Error(), "TraceURL") {
			t.Errorf("%q: %v", address, err)
		}
	}
}

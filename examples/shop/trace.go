package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/kagzi/kagzi"
)

// drawTraces draws the trace in which the run of that ID was started, and those that are linked to it, as trees.
func drawTraces(spans tracetest.SpanStubs, id kagzi.ID) string {
	slices.SortFunc(spans, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	d := &drawing{children: map[trace.SpanID][]tracetest.SpanStub{}}
	var traceID trace.TraceID
	for _, s := range spans {
		d.children[s.Parent.SpanID()] = append(d.children[s.Parent.SpanID()], s)
		if strings.HasPrefix(s.Name, "start ") && attribute(s, "kagzi.run.external_id") == string(id) {
			traceID = s.SpanContext.TraceID()
		}
	}
	var root, linked []tracetest.SpanStub
	for _, s := range d.children[trace.SpanID{}] {
		if s.SpanContext.TraceID() == traceID {
			root = append(root, s)
		} else if slices.ContainsFunc(s.Links, func(l sdktrace.Link) bool {
			return l.SpanContext.TraceID() == traceID
		}) {
			linked = append(linked, s)
		}
	}
	for _, s := range root {
		d.draw(s, "", "")
	}
	d.WriteString("\nAn execution after a long wait is a trace of its own, with links to this one:\n\n")
	for _, s := range linked {
		d.draw(s, "", "")
	}
	return strings.TrimRight(d.String(), "\n")
}

type drawing struct {
	strings.Builder
	children map[trace.SpanID][]tracetest.SpanStub // of each span, the oldest first
}

// draw draws a span and the spans below it. The lines of its children begin with indent.
func (d *drawing) draw(s tracetest.SpanStub, branch, indent string) {
	name := branch + s.Name
	fmt.Fprintf(d, "%s%s %9s", name, strings.Repeat(" ", max(1, 40-utf8.RuneCountInString(name))),
		s.EndTime.Sub(s.StartTime).Round(10*time.Microsecond))
	if strings.HasPrefix(s.Name, "execute ") {
		d.WriteString("  " + cmp.Or(attribute(s, "kagzi.outcome"), "completed"))
		if reason := attribute(s, "kagzi.reason"); reason != "" {
			d.WriteString(": " + reason)
		}
	}
	d.WriteByte('\n')
	children := d.children[s.SpanContext.SpanID()]
	for i, c := range children {
		if i == len(children)-1 {
			d.draw(c, indent+"└─ ", indent+"   ")
		} else {
			d.draw(c, indent+"├─ ", indent+"│  ")
		}
	}
}

// attribute returns an attribute of a span as text, empty if there is none.
func attribute(s tracetest.SpanStub, key string) string {
	for _, a := range s.Attributes {
		if string(a.Key) == key {
			return a.Value.String()
		}
	}
	return ""
}

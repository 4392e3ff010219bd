package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"sync"
	"time"
)

// An output writes lines of JSON.
type output struct {
	instance int
	mu       sync.Mutex
	to       *json.Encoder
}

func newOutput(to io.Writer, instance int) *output {
	return &output{instance: instance, to: json.NewEncoder(to)}
}

func (o *output) write(line map[string]any) {
	line["instance_id"], line["system"] = o.instance, "kagzi"
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.to.Encode(line); err != nil {
		fmt.Fprintln(os.Stderr, "[kagzi] write:", err)
	}
}

func now() string { return time.Now().UTC().Format("2006-01-02T15:04:05.000Z07:00") }

// tables are those whose dead rows the harness watches.
var tables = []string{"kagzi.workflow_runs", "kagzi.step_runs"}

// describe writes the first line, which says what is measured.
func (b *bench) describe(database string) {
	version := "devel"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if d.Path == "github.com/kagzi/kagzi" && d.Replace == nil {
				version = d.Version
			}
		}
	}
	b.out.write(map[string]any{
		"kind": "descriptor", "event_tables": tables, "extensions": []string{}, "version": version,
		"schema_version": "kagzi.Migrate", "db_name": database, "started_at": now(),
	})
}

// report writes samples, at whole multiples of the time between two, until ctx ends.
func (b *bench) report(ctx context.Context) {
	last, started, completed := time.Now(), b.started.Load(), b.completed.Load()
	for next := last.Truncate(b.sample).Add(b.sample); ; next = next.Add(b.sample) {
		timer := time.NewTimer(time.Until(next))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		passed := time.Since(last).Seconds()
		last = time.Now()
		s, c := b.started.Load(), b.completed.Load()
		q := b.latencies.quantiles(0.5, 0.95, 0.99)
		b.sampleOf("claim_p50_ms", q[0], 30)
		b.sampleOf("claim_p95_ms", q[1], 30)
		b.sampleOf("claim_p99_ms", q[2], 30)
		b.sampleOf("enqueue_rate", float64(s-started)/passed, b.sample.Seconds())
		b.sampleOf("completion_rate", float64(c-completed)/passed, b.sample.Seconds())
		if b.instance == 0 { // what is the same for all processes
			b.sampleOf("queue_depth", float64(b.waiting.Load()), 0)
			b.sampleOf("producer_target_rate", float64(b.offered.Load()), 0)
		}
		started, completed = s, c
	}
}

func (b *bench) sampleOf(metric string, value, seconds float64) {
	b.out.write(map[string]any{
		"t": now(), "kind": "adapter", "subject_kind": "adapter", "subject": "", "metric": metric, "value": value,
		"window_s": seconds,
	})
}

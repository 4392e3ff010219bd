package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// A line is what the adapter writes.
type line struct {
	Kind     string   `json:"kind"`
	Metric   string   `json:"metric"`
	Value    float64  `json:"value"`
	System   string   `json:"system"`
	Instance int      `json:"instance_id"`
	Tables   []string `json:"event_tables"`
}

// begin runs the adapter, and returns its lines. stop returns the error of run.
func begin(t *testing.T, stdin io.Reader, variables map[string]string) (lines <-chan line, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := run(ctx, func(name string) string { return variables[name] }, stdin, in)
		_ = in.Close() // ends the reader
		done <- err
	}()
	read := make(chan line, 1000)
	go func() {
		defer close(read)
		for s := bufio.NewScanner(out); s.Scan(); {
			var l line
			if err := json.Unmarshal(s.Bytes(), &l); err != nil {
				t.Errorf("%s: %v", s.Bytes(), err)
			}
			read <- l
		}
	}()
	t.Cleanup(cancel)
	return read, func() error {
		cancel()
		return <-done
	}
}

// awaitMetrics returns once each metric has had a value for which is holds.
func awaitMetrics(t *testing.T, lines <-chan line, is map[string]func(float64) bool) {
	t.Helper()
	for len(is) > 0 {
		l := await.Receive(t, lines)
		if l.System != "kagzi" {
			t.Fatalf("a line of %q", l.System)
		}
		if holds, ok := is[l.Metric]; ok && holds(l.Value) {
			delete(is, l.Metric)
		}
	}
}

func positive(v float64) bool { return v > 0 }

func between(low, high float64) func(float64) bool {
	return func(v float64) bool { return v >= low && v <= high }
}

func TestSteadyLoad(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	rate := filepath.Join(t.TempDir(), "rate")
	lines, stop := begin(t, strings.NewReader(""), map[string]string{
		"DATABASE_URL": db.DSN, "PRODUCER_RATE": "1", "PRODUCER_RATE_CONTROL_FILE": rate, "SAMPLE_EVERY_S": "1",
		"JOB_PAYLOAD_BYTES": "100",
	})
	first := await.Receive(t, lines)
	var manifest struct {
		Tables []string `json:"event_tables"`
		System string   `json:"system"`
	}
	text, err := os.ReadFile("adapter.json")
	if err == nil {
		err = json.Unmarshal(text, &manifest)
	}
	if err != nil || first.Kind != "descriptor" || !slices.Equal(first.Tables, manifest.Tables) ||
		first.System != manifest.System {
		t.Errorf("the first line is %+v, the manifest %+v, %v", first, manifest, err)
	}
	if err := os.WriteFile(rate, []byte("200.0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	awaitMetrics(t, lines, map[string]func(float64) bool{
		"claim_p50_ms": positive, "claim_p95_ms": positive, "claim_p99_ms": positive,
		"enqueue_rate": between(20, 220), "completion_rate": positive,
		"queue_depth": between(0, 1e6), "producer_target_rate": between(200, 200),
	})
	if err := stop(); err != nil {
		t.Error(err)
	}
	size := dbtest.QueryOne[int](t, db.Pool, `SELECT min(octet_length(input)) FROM kagzi.workflow_runs`)
	if size < 100 || size > 250 {
		t.Errorf("a payload of 100 bytes became %d", size)
	}
}

// The harness may say itself when how many runs are to be started.
func TestPacingByTheHarness(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	stdin, tokens := io.Pipe()
	lines, stop := begin(t, stdin, map[string]string{
		"DATABASE_URL": db.DSN, "PRODUCER_PACING": "harness", "SAMPLE_EVERY_S": "1", "BENCH_INSTANCE_ID": "1",
	})
	for _, token := range []string{"ENQUEUE 30\n", "nonsense\n", "ENQUEUE 12\n"} {
		if _, err := io.WriteString(tokens, token); err != nil {
			t.Fatal(err)
		}
	}
	count := func() int {
		return dbtest.QueryOne[int](t, db.Pool,
			`SELECT count(*)::int FROM kagzi.workflow_runs WHERE status = 'COMPLETED'`)
	}
	await.True(t, "all are done", func() bool { return count() == 42 })
	awaitMetrics(t, lines, map[string]func(float64) bool{"enqueue_rate": positive})
	if err := errors.Join(tokens.Close(), stop()); err != nil {
		t.Error(err)
	}
	for l := range lines {
		if l.Instance != 1 || l.Metric == "queue_depth" {
			t.Errorf("the second process wrote %+v", l)
		}
	}
	if n := count(); n != 42 {
		t.Errorf("%d runs", n)
	}
}

// A number of runs waits all the time.
func TestTargetDepth(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	lines, stop := begin(t, strings.NewReader(""), map[string]string{
		"DATABASE_URL": db.DSN, "PRODUCER_MODE": "depth-target", "TARGET_DEPTH": "300", "SAMPLE_EVERY_S": "1",
		"WORKER_COUNT": "1", "JOB_WORK_MS": "50",
	})
	awaitMetrics(t, lines, map[string]func(float64) bool{"queue_depth": between(200, 1000)})
	if err := stop(); err != nil {
		t.Error(err)
	}
	// a look may come late, and meanwhile runs are started as though none had been executed
	if n := dbtest.QueryOne[int](t, db.Pool, `SELECT count(*)::int FROM kagzi.workflow_runs`); n > 1000 {
		t.Errorf("%d runs were started", n)
	}
}

func TestSettingsThatCannotWork(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	for want, variables := range map[string]map[string]string{
		"DATABASE_URL is empty":    {},
		`PRODUCER_RATE is "fast"`:  {"DATABASE_URL": db.DSN, "PRODUCER_RATE": "fast"},
		`WORKER_COUNT is "0"`:      {"DATABASE_URL": db.DSN, "WORKER_COUNT": "0"},
		`PRODUCER_MODE is "burst"`: {"DATABASE_URL": db.DSN, "PRODUCER_MODE": "burst"},
		`SCENARIO is "all"`:        {"DATABASE_URL": db.DSN, "SCENARIO": "all"},
	} {
		err := run(t.Context(), func(name string) string { return variables[name] }, strings.NewReader(""), io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", variables, err, want)
		}
	}
}

func TestQuantilesOfHalfAMinute(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_000_000, 0)
	w := newWindow(func() time.Time { return at })
	if got := w.quantiles(0.5, 0.99); got[0] != 0 || got[1] != 0 {
		t.Errorf("without durations: %v", got)
	}
	for i := range 1000 {
		w.add(time.Duration(i+1) * time.Millisecond)
	}
	near := func(got, want float64) bool { return got > want*0.99 && got < want*1.01 }
	if got := w.quantiles(0.5, 0.95, 0.99); !near(got[0], 500) || !near(got[1], 950) || !near(got[2], 990) {
		t.Errorf("of 1 to 1000 ms: %v", got)
	}
	at = at.Add(29 * time.Second)
	w.add(time.Hour)
	w.add(0)
	if got := w.quantiles(0, 0.5); !near(got[0], 0.01) || !near(got[1], 500) {
		t.Errorf("29 seconds later: %v", got)
	}
	at = at.Add(time.Second)
	if got := w.quantiles(0.5); !near(got[0], 0.01) {
		t.Errorf("after half a minute: %v", got)
	}
}

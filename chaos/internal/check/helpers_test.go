package check_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/kagzi/kagzi/chaos/internal/check"
	"github.com/kagzi/kagzi/chaos/internal/evidence"
)

// A world is evidence under construction. Its clock, which is that of the machine and of the database alike, goes on by
// ten milliseconds with each event.
type world struct {
	evidence.Evidence
	x       check.Expectations
	ends    map[string]check.Ending // what the oracle says of each run
	drained bool
	now     time.Duration
	rows    map[string]map[string]any // the present rows, by run or by run, step and attempt
}

// epoch is the database's time when the machine's clock shows zero.
var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newWorld() *world {
	w := &world{now: time.Second, rows: map[string]map[string]any{}, ends: map[string]check.Ending{}}
	w.Accounts = map[string]int64{"a": 10, "b": 10}
	w.x = check.Expectations{
		Ending: func(r evidence.Run) (check.Ending, bool) {
			end, ok := w.ends[r.ID]
			return end, ok
		},
		Transactional: func(step string) bool { return step == "tx" || step == "parts" },
		Moves:         func(step string) bool { return step == "tx" },
		Parts: func(step string) int {
			if step == "parts" {
				return 2
			}
			return 0
		},
		Once:     func(step string) bool { return step == "once" },
		Ended:    func(c evidence.Call) bool { return c.ExternalID == "once" },
		Item:     func(c evidence.Call) (string, bool) { return "item of " + c.Run, c.Verb == "batch" },
		Accounts: map[string]int64{"a": 10, "b": 10},
		Bounds: check.Bounds{
			Settle: 10 * time.Second, Takeover: 2 * time.Second, Unheld: 2 * time.Second, Due: 2 * time.Second,
			Told: 2 * time.Second,
		},
		Backoff:    func(evidence.Step) (time.Duration, time.Duration) { return 10 * time.Millisecond, time.Second },
		Answer:     func(c evidence.Call) string { return "answer to " + c.Name },
		RunBackoff: func(string, int) time.Duration { return time.Second },
		Events:     check.Events{Published: published, Payload: payload, Awaited: awaited},
	}
	return w
}

func (w *world) tick() time.Duration {
	w.now += 10 * time.Millisecond
	return w.now
}

func (w *world) wall() time.Time { return epoch.Add(w.now) }

// change records that by changes columns of a row. A column that becomes nil is null.
func (w *world) change(by, table, run, step string, attempt int, columns map[string]any) *evidence.Change {
	w.tick()
	key := fmt.Sprint(run, step, attempt)
	c := evidence.Change{
		ChangeID: int64(len(w.Changes) + 1), At: w.wall(), Table: table, Run: run, Step: step, Attempt: attempt, By: by,
		TxID: uint64(len(w.Changes) + 1), Operation: "UPDATE", Old: json.RawMessage("null"),
		New: json.RawMessage("null"),
	}
	row := w.rows[key]
	if row == nil {
		row, c.Operation = map[string]any{"run_id": run}, "INSERT"
	}
	for name, value := range columns {
		if row[name] = value; value == nil {
			delete(row, name)
		}
	}
	w.rows[key] = row
	c.New, _ = json.Marshal(row) // it has texts, numbers and times
	w.Changes = append(w.Changes, c)
	return &w.Changes[len(w.Changes)-1]
}

type columns = map[string]any

// run changes a run's row.
func (w *world) run(by, run string, c columns) { w.change(by, "workflow_runs", run, "", 0, c) }

// step changes a step's row.
func (w *world) step(by, run, step string, attempt int, c columns) {
	w.change(by, "step_runs", run, step, attempt, c)
}

// remove deletes a row.
func (w *world) remove(run, step string, attempt int) {
	key := fmt.Sprint(run, step, attempt)
	table := "workflow_runs"
	if step != "" {
		table = "step_runs"
	}
	old, _ := json.Marshal(w.rows[key])
	c := w.change("", table, run, step, attempt, nil)
	c.Operation, c.Old, c.New = "DELETE", old, json.RawMessage("null")
	delete(w.rows, key)
}

// line writes a line into the ledger of a worker.
func (w *world) line(worker, event, run, step string, attempt int, lease, detail string) {
	w.Ledger = append(w.Ledger, evidence.Line{
		At: w.tick(), Worker: worker, Event: event, Run: run, Step: step,
		Attempt: attempt, Lease: lease, Detail: detail,
	})
}

// start inserts a run, as a client's call.
func (w *world) start(run, id string, c columns) {
	call := evidence.Call{
		Client: 1, Verb: "start", Program: 1, Run: run, ExternalID: id, Began: w.tick(),
		Outcome: evidence.OK,
	}
	row := columns{"status": "PENDING", "workflow_type": "program", "available_at": w.wall()}
	if id != "" {
		row["external_id"] = id
	}
	for name, value := range c {
		row[name] = value
	}
	w.run("driver", run, row)
	call.Ended = w.tick()
	w.Calls = append(w.Calls, call)
}

// claim gives a worker a lease. If another one holds the run, a coordinator releases it before.
func (w *world) claim(worker, run, lease string) {
	if row := w.rows[fmt.Sprint(run, "", 0)]; row["status"] == "RUNNING" {
		w.run("1.1", run, columns{"available_at": w.wall()})
	}
	w.lease(worker, run, lease)
}

func (w *world) lease(worker, run, lease string) {
	w.run(worker, run, columns{
		"status": "RUNNING", "lease": lease, "locked_by": "id of " + worker,
		"available_at": w.wall().Add(3 * time.Second),
	})
}

// execute executes a step, and records its result.
func (w *world) execute(worker, run, step string, attempt int, lease, result string) {
	w.line(worker, evidence.Begin, run, step, attempt, lease, "")
	w.line(worker, evidence.End, run, step, attempt, lease, result)
	w.record(worker, run, step, attempt, result)
}

// record records the result of a step.
func (w *world) record(worker, run, step string, attempt int, result string) {
	w.step(worker, run, step, attempt, columns{
		"step_kind": "FUNCTION", "run_attempt": 1, "status": "COMPLETED",
		"output": "hash of " + result, "finished_at": w.wall(),
	})
	w.Steps = append(w.Steps, evidence.Step{
		Run: run, Step: step, Kind: "FUNCTION", Status: "COMPLETED", Attempt: attempt, Output: result,
		Hash: "hash of " + result, RunAttempt: 1,
		Position: int64(len(w.Steps) + 1), Started: w.wall(), Finished: w.wall(),
	})
}

// finish ends a run.
func (w *world) finish(by, run, status string, more columns) {
	row := columns{"status": status, "available_at": nil, "locked_by": nil, "finished_at": w.wall()}
	for name, value := range more {
		row[name] = value
	}
	w.run(by, run, row)
}

// drain stops the worker 2.1.
func (w *world) drain() {
	w.line("2.1", evidence.Stopped, "", "", 0, "", "goroutines: 0")
	w.drained = true
}

// end drains the worker, and makes the final table of the runs, the samples and the stamps.
func (w *world) end() *evidence.Evidence {
	if !w.drained {
		w.drain()
	}
	for _, c := range w.Changes {
		if c.Table == "workflow_runs" && c.Operation == "INSERT" && w.rows[fmt.Sprint(c.Run, "", 0)] != nil {
			w.Runs = append(w.Runs, w.final(c.Run, c.At))
		}
	}
	first, last := time.Duration(math.MaxInt64), time.Duration(0) // of the samples that are there
	for _, s := range w.Samples {
		first, last = min(first, s.At), max(last, s.At)
	}
	w.Healed, w.Over = w.now-time.Second, w.now+time.Second
	for at := time.Duration(0); at <= w.Over+time.Second; at += 500 * time.Millisecond {
		w.Clock = append(w.Clock, evidence.Stamp{Asked: at, Answered: at, DB: epoch.Add(at)})
		if at < first || at > last {
			w.Samples = append(w.Samples, evidence.Sample{
				At: at, Now: epoch.Add(at), Running: map[string]string{},
				Held: map[string]bool{},
			})
		}
	}
	slices.SortFunc(w.Samples, func(a, b evidence.Sample) int { return cmp.Compare(a.At, b.At) })
	return &w.Evidence
}

func (w *world) final(run string, created time.Time) evidence.Run {
	row := w.rows[fmt.Sprint(run, "", 0)]
	text := func(name string) string {
		value, _ := row[name].(string)
		return value
	}
	at := func(name string) time.Time {
		value, _ := row[name].(time.Time)
		return value
	}
	epochs, _ := row["epoch"].(int)
	return evidence.Run{
		Epoch:       epochs,
		Quarantined: row["quarantined"] == true, Paused: row["paused"] == true,
		ID: run, ExternalID: text("external_id"), Workflow: text("workflow_type"), Status: text("status"),
		ErrorKind: text("error_kind"), Error: text("error"), Origin: text("origin_run_id"),
		Parent: text("parent_run_id"), ParentStep: text("parent_step_id"), Schedule: text("schedule_name"),
		FireAt: at("fire_at"),
		Output: text("text"), Hash: text("output"), Created: created, Finished: at("finished_at"), Lease: text("lease"),
	}
}

// found returns the invariants that are violated, each once.
func found(e *evidence.Evidence, x check.Expectations) (names []string) {
	for _, v := range check.All(e, x) {
		if !slices.Contains(names, v.Invariant) {
			names = append(names, v.Invariant)
		}
	}
	return names
}

// exactly fails the test unless all violations are of one invariant, and there are some; none if it is empty.
func exactly(t *testing.T, w *world, invariant string) {
	t.Helper()
	e := w.end()
	var want []string
	if invariant != "" {
		want = []string{invariant}
	}
	if got := found(e, w.x); !slices.Equal(got, want) {
		t.Errorf("violated: %q, want %q", got, want)
		for _, v := range check.All(e, w.x) {
			t.Log(v)
		}
	}
}

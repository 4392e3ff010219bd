package driver

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/kagzi/kagzi/chaos/internal/check"
	"github.com/kagzi/kagzi/chaos/internal/evidence"
	"github.com/kagzi/kagzi/chaos/internal/load"
)

// expectations are what the plan and the oracle promise of a round.
func (p Plan) expectations(recovers time.Duration) check.Expectations {
	t := p.Times
	x := check.Expectations{
		Ending:        ending,
		Program:       program,
		Transactional: func(step string) bool { return moves(step) || step == "collect" },
		Moves:         moves,
		Item:          item,
		Accounts:      map[string]int64{},
		Takeover:      min(t.Lease, t.Stale+t.Grace) + recovers,
		Unheld:        t.Stale + t.Grace + t.Poll + 2*time.Second,
		Due:           t.Poll + 2*time.Second,
		Backoff:       2 * time.Second,
	}
	for i := range load.Accounts {
		x.Accounts[fmt.Sprint("account ", i)] = load.Balance
	}
	return x
}

// moves reports whether a step moves money.
func moves(step string) bool { return strings.HasPrefix(path.Base(step), "tx") }

// item returns the item that a call added to a batch.
func item(call evidence.Call) (string, bool) {
	return load.Item(load.Job{N: call.Program}), call.Verb == "batch"
}

// jobOf returns the job of a run of load.Run.
func jobOf(r evidence.Run) (job load.Job, ok bool) {
	return job, r.Workflow == load.Run.Name() && json.Unmarshal([]byte(r.Input), &job) == nil
}

func ending(r evidence.Run) (check.Ending, bool) {
	switch r.Workflow {
	case load.Undoing.Name():
		return check.Ending{Output: "{}"}, true
	case load.Settled.Name():
		var in string
		err := json.Unmarshal([]byte(r.Input), &in)
		return check.Ending{Output: load.SettledResult(in)}, err == nil
	}
	job, ok := jobOf(r)
	if !ok {
		return check.Ending{}, false
	}
	want := load.Expect(job, max(r.Version, 1))
	end := check.Ending{Failed: want.Failed, Output: want.Output, Registered: slices.Clone(want.Undone), Replaced: r.Schedule != ""}
	slices.Reverse(end.Registered)
	if job.Generation == 0 {
		end.Messages = load.Messages(job)
	}
	return end, true
}

// program returns the number of the job that a customer has started.
func program(r evidence.Run) (int, bool) {
	job, ok := jobOf(r)
	return job.N, ok && r.Parent == "" && r.Schedule == "" && r.Origin == ""
}

// ticks returns what the schedules had to do, by an enumeration that uses nothing of Kagzi. A tick within the second in which a schedule
// was made may be missing.
func ticks(seed uint64, until time.Time, made map[string]time.Time) (all []evidence.Tick, err error) {
	for _, s := range load.Schedules(seed, until) {
		from, there := made[s.Name]
		if !there {
			return nil, fmt.Errorf("schedule %q is not there", s.Name)
		}
		ticks, err := check.Ticks(check.Timetable{Schedule: s.Name, Cron: s.Cron, Every: s.Every, Start: s.Start, Overlap: string(s.Overlap)}, from, until)
		if err != nil {
			return nil, err
		}
		for i := range ticks {
			if ticks[i].At.Before(from.Add(time.Second)) {
				ticks[i].May = "fire or skip"
			}
		}
		all = append(all, ticks...)
	}
	return all, nil
}

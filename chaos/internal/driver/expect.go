package driver

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/kagzi/kagzi"

	"github.com/kagzi/kagzi/chaos/internal/check"
	"github.com/kagzi/kagzi/chaos/internal/evidence"
	"github.com/kagzi/kagzi/chaos/internal/load"
)

// expectations are what the plan and its workloads promise.
func (p Plan) expectations() check.Expectations {
	accounts := map[string]int64{}
	for i := range load.Accounts {
		accounts[fmt.Sprint("account ", i)] = load.Balance
	}
	return check.Expectations{
		Ending: ending, Program: program, Sleep: sleeps, Accounts: accounts,
		Transactional: func(step string) bool {
			return moves(step) || load.Parts(step) > 0 || step == "collect"
		},
		Moves: moves, Parts: load.Parts, Once: once,
		Ended: func(c evidence.Call) bool { return !strings.HasPrefix(c.ExternalID, "job ") },
		Item: func(c evidence.Call) (string, bool) {
			return load.Item(load.Job{N: c.Program}), c.Verb == "batch"
		},
		Answer:  func(c evidence.Call) string { return load.Answer(c.Name) },
		Backoff: load.Backoff, RunBackoff: load.RunBackoff,
		Events: check.Events{Published: load.Published, Payload: payload, Awaited: awaited},
		Bounds: check.Bounds{
			Settle: p.patience(), Takeover: p.detects(), Unheld: p.detects(), Due: p.Times.Poll + 3*time.Second,
			Told:      5 * time.Second,
			Retention: p.Keep,
		},
	}
}

// detects is how long a failure detector may need, if nothing else is broken: a worker whose connections are gone is
// dead after Grace, another one once it has sent no heartbeat for StaleAfter. Either is observed for as long again, and
// a machine that is busy with chaos adds to it.
func (p Plan) detects() time.Duration { return p.recovers() + 5*time.Second }

// moves reports whether a step moves money.
func moves(step string) bool { return strings.HasPrefix(step[strings.LastIndex(step, "/")+1:], "tx") }

// once reports whether a step is called at most once.
func once(step string) bool { return strings.HasPrefix(step[strings.LastIndex(step, "/")+1:], "once") }

// job returns the job that a run executes.
func job(r evidence.Run) (job load.Job, ok bool) {
	ok = r.Workflow == load.Run.Name() && json.Unmarshal([]byte(r.Input), &job) == nil
	return job, ok
}

// program is check.Expectations.Program.
func program(r evidence.Run) (int, bool) {
	job, ok := job(r)
	return job.N, ok && job.Kind == "" && r.Parent == "" && r.Schedule == "" && r.Origin == "" && !load.Shared(job)
}

// sleeps is check.Expectations.Sleep.
func sleeps(r evidence.Run, step string) (time.Duration, bool) {
	job, ok := job(r)
	if !ok {
		return 0, false
	}
	return load.SleepOf(job, step)
}

// payload is check.Events.Payload.
func payload(e evidence.Event) (string, bool) {
	return load.NewsPayload(e.ID), e.Topic == load.News.Name()
}

// awaited is check.Events.Awaited.
func awaited(r evidence.Run, step string) (e evidence.Event, ok bool) {
	job, ok := job(r)
	if !ok {
		return e, false
	}
	id, ok := load.NewsIn(job, step)
	return evidence.Event{Topic: load.News.Name(), ID: id}, ok
}

// ending is check.Expectations.Ending.
func ending(r evidence.Run) (end check.Ending, ok bool) {
	switch r.Workflow {
	case load.Collected.Name():
		var items []string
		ok = json.Unmarshal([]byte(r.Input), &items) == nil
		return check.Ending{Output: load.CollectedResult(items)}, ok && len(items) > 0
	case load.Settled.Name():
		var in string
		ok = json.Unmarshal([]byte(r.Input), &in) == nil
		return check.Ending{Output: load.SettledResult(in)}, ok
	}
	job, ok := job(r)
	if !ok {
		return end, false
	}
	want := load.Expect(job, max(r.Version, 1))
	end = check.Ending{
		Failed: want.Failed, Output: want.Output, Value: want.Value, Registered: want.Registered,
		Messages: want.Read, RollsBack: want.RollsBack,
	}
	if want.Poison {
		end.Kinds = []string{"crash_loop"}
	}
	end.Replaced = load.Shared(job) || r.Queue == "keyed" ||
		strings.HasSuffix(r.Schedule, string(kagzi.OverlapCancelPrevious))
	end.AnyValue = r.Origin != "" && job.Epoch > 0 // a restart begins with the input of the last epoch
	if r.Origin != "" && len(end.Messages) > 0 {
		return end, false // a fork may begin behind a message, and get it again
	}
	return end, true
}

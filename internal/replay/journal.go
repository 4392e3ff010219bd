package replay

import (
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/kagzi/kagzi/store"
)

// A journal is what the run has recorded before this execution, and the order of what it records now. read sets the
// history before the execution begins, and it does not change afterwards. So a journal needs no lock.
type journal struct {
	env     *Env
	of      store.HeldRun
	attempt int                       // of the run, from 1
	history map[string]*store.StepRow // the latest attempt of each step, as it was at the claim
	// how many steps and branches of the history are directly under each branch: see ownOf
	own       map[string]int
	copied    map[string]int // like own, of the steps and branches that a fork has copied; nil if there are none
	positions atomic.Int64   // the position of the run's last record
	// the history has a step's checkpoint. Set by read.
	checkpoints bool
}

func newJournal(env *Env, run *store.ClaimedRun) journal {
	return journal{env: env, of: store.HeldRun{RunID: run.RunID, Lease: run.Lease}, attempt: run.Attempts + 1}
}

// held names the run under its lease.
func (j *journal) held() store.HeldRun { return j.of }

// newRecord returns a record of the numbered attempt, in a series that began with attempt first.
func (j *journal) newRecord(id, kind, status string, attempt, first int) *store.Record {
	return &store.Record{
		StepRow: store.StepRow{
			RunID: j.of.RunID, StepID: id, Attempt: attempt, FirstAttempt: first,
			RunAttempt: j.attempt, Status: status, Kind: kind, Position: j.nextPosition(),
		},
		Lease: j.of.Lease, Worker: j.env.ID(), Wake: -1,
	}
}

// read takes over the rows of the history. It is called before the execution begins.
func (j *journal) read(rows []*store.StepRow) {
	j.history = historyOf(rows)
	j.own = ownOf(j.history)
	isCopied := func(r *store.StepRow) bool { return r.RunAttempt == 0 && !j.forgot(r) }
	if slices.ContainsFunc(rows, isCopied) {
		j.copied = ownOf(historyOf(slices.DeleteFunc(slices.Clone(rows), func(r *store.StepRow) bool {
			return !isCopied(r)
		})))
	}
	for _, row := range rows {
		j.positions.Store(max(j.positions.Load(), row.Position))
		j.checkpoints = j.checkpoints || row.Kind == store.KindCheckpoint
	}
}

// runAttempt returns the number of the run's attempt, from 1.
func (j *journal) runAttempt() int { return j.attempt }

// recordOf returns the latest attempt of the step id in the history, nil if there is none.
func (j *journal) recordOf(id string) *store.StepRow { return j.history[id] }

// hasRecorded reports whether the history has the step or branch id.
func (j *journal) hasRecorded(id string) bool {
	if len(j.history) == 0 {
		return false
	}
	_, below := j.own[id+"/"]
	return below || j.history[id] != nil
}

// hasCheckpoints reports whether the history has a checkpoint of any step.
func (j *journal) hasCheckpoints() bool { return j.checkpoints }

// hasRegistered reports whether the history has a compensation with a call.
func (j *journal) hasRegistered() bool {
	for _, row := range j.history {
		if row.Kind == store.KindCompensation && row.Output != nil {
			return true
		}
	}
	return false
}

// directlyUnder returns how many steps and branches the history has directly under the branch with the prefix.
func (j *journal) directlyUnder(prefix string) int { return j.own[prefix] }

// isCopy reports whether the run is a fork that has copied steps or branches from its source.
func (j *journal) isCopy() bool { return j.copied != nil }

// copiedUnder is directlyUnder for what a fork has copied.
func (j *journal) copiedUnder(prefix string) int { return j.copied[prefix] }

// hasCopied reports whether the run is a fork and has the step or branch id from its source. A failure that it has
// forgotten does not count: the fork executes that step itself.
func (j *journal) hasCopied(id string) bool {
	_, below := j.copied[id+"/"]
	row := j.history[id]
	return below || row != nil && row.RunAttempt == 0 && !j.forgot(row)
}

// forgot reports whether an earlier attempt of the run has forgotten row, which is a failure.
func (j *journal) forgot(row *store.StepRow) bool {
	return row.ForgottenBy > 0 && row.ForgottenBy < j.attempt
}

// nextPosition returns the position of another record in the order of the run's records.
func (j *journal) nextPosition() int64 { return j.positions.Add(1) }

// startAt makes the position given that of the run's last record.
func (j *journal) startAt(position int64) { j.positions.Store(position) }

// lastPosition returns the position of the run's last record.
func (j *journal) lastPosition() int64 { return j.positions.Load() }

// historyOf returns a run's rows by step ID.
func historyOf(rows []*store.StepRow) map[string]*store.StepRow {
	if len(rows) == 0 {
		return nil
	}
	return maps.Collect(func(yield func(string, *store.StepRow) bool) {
		for _, r := range rows {
			if !yield(r.StepID, r) {
				return
			}
		}
	})
}

// ownOf returns, for each branch's prefix, the number of steps and branches in the history directly under it. A record
// whose name begins with '#' is neither: see [Patched].
func ownOf(history map[string]*store.StepRow) map[string]int {
	own, seen := map[string]int{}, map[string]bool{}
	for id := range history {
		for end := len(id); end > 0 && !seen[id[:end]]; {
			seen[id[:end]] = true
			start := strings.LastIndexByte(id[:end], '/') + 1
			if strings.HasPrefix(id[start:end], "#") || strings.HasSuffix(id[:end], store.CompensationID("")) {
				own[id[:start]] += 0 // the branch gets an entry all the same
			} else {
				own[id[:start]]++
			}
			end = start - 1
		}
	}
	return own
}

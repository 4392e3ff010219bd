package replay

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

// Present changes rows, which are all attempts of a run's steps, to what they mean to people. The table says what a
// replay needs: it keeps an attempt RUNNING if its branch lost a race, or its run ended, before it did, because losers
// write nothing. r was read before the rows. before says that these are of the epoch before its own. Present returns
// the rows without checkpoints of steps that have completed.
func Present(r *store.Run, rows []*store.StepRow, before bool) []*store.StepRow {
	if before {
		r = r.Before()
	}
	p := presentation{run: r, latest: map[string]*store.StepRow{}}
	for _, row := range rows {
		if l := p.latest[row.StepID]; l == nil || row.Attempt > l.Attempt {
			p.latest[row.StepID] = row
		}
	}
	p.readDecisions()
	for _, row := range rows {
		switch row.Status {
		case store.Running:
			p.running(row)
		case store.Completed:
			p.completed(row)
		case store.Failed:
			p.failed(row)
		}
	}
	return slices.DeleteFunc(rows, func(row *store.StepRow) bool {
		if row.Kind != store.KindCheckpoint {
			return false
		}
		step := p.latest[store.StepOfCheckpoint(row.StepID)]
		return step != nil && step.Status == store.Completed
	})
}

// A presentation is one call of Present.
type presentation struct {
	run      *store.Run
	latest   map[string]*store.StepRow // the newest attempt of each step
	branches map[string]time.Time      // when the branches failed that have, by ID
	groups   map[string]presentedGroup // the groups that one branch, or the timeout, has decided, by ID
}

type presentedGroup struct {
	*decision
	at time.Time // when it was recorded
}

// readDecisions reads the records of groups and branches. Those that an attempt of the run has forgotten do not count.
func (p *presentation) readDecisions() {
	p.branches, p.groups = map[string]time.Time{}, map[string]presentedGroup{}
	for id, row := range p.latest {
		if row.ForgottenBy > 0 || row.Status == store.Running {
			continue
		}
		switch row.Kind {
		case store.KindBranch:
			p.branches[id] = row.FinishedAt
		case store.KindMarker:
			d := &decision{}
			if json.Unmarshal(row.Output, d) == nil && d.made() { // markers that are no groups have other outputs
				p.groups[id] = presentedGroup{d, row.FinishedAt}
			}
		}
	}
}

// running presents an attempt whose end is not recorded.
func (p *presentation) running(row *store.StepRow) {
	ended, at := p.ended(row.StepID)
	switch {
	case row.Kind == store.KindCompensation:
		p.compensation(row)
	case row.Child != nil: // it goes on by itself if it is detached
		if !row.Child.FinishedAt.IsZero() {
			row.Status, row.FinishedAt, row.ErrorKind, row.Error = row.Child.Status, row.Child.FinishedAt,
				row.Child.ErrorKind, row.Child.Error
		}
	case row.Kind == store.KindFunction && row.ErrorKind != "":
		p.doubt(row)
	case ended:
		row.Status, row.FinishedAt = store.Cancelled, at
	case row.Kind == store.KindFunction && (p.run.Status != store.Running || !p.run.SilentSince.IsZero()):
		// its worker has gone, and the attempt is made again
		row.Status = store.Pending
	}
}

// doubt presents an attempt that is called at most once.
func (p *presentation) doubt(row *store.StepRow) {
	if row.Error == "" && p.run.Status == store.Running && p.run.SilentSince.IsZero() { // the call is under way
		row.ErrorKind = ""
		return
	}
	row.Status = store.InDoubt
}

// compensation presents a registration whose run has not ended, or was never started.
func (p *presentation) compensation(row *store.StepRow) {
	switch {
	case row.RunAttempt == 0, p.latest[row.StepID] != row: // left to the source of a fork, or replaced
		row.Status = store.Cancelled
	case !p.run.FinishedAt.IsZero():
		row.Status, row.FinishedAt = store.Cancelled, p.run.FinishedAt
	case row.ChildRunID == uuid.Nil:
		row.Status = store.Pending
	}
}

// completed presents a wait for a message, or a group, that timed out: a replay gets the same error, so it is recorded
// as complete.
func (p *presentation) completed(row *store.StepRow) {
	switch {
	case row.ErrorKind != "":
		row.Status = store.Failed
	case row.Kind == store.KindMarker && p.isTimeout(row.StepID):
		row.Status, row.ErrorKind, row.Error = store.Failed, string(kind.Timeout), "the branches were not done in time"
	}
}

// isTimeout reports whether the group of that ID has timed out.
func (p *presentation) isTimeout(id string) bool {
	g, decided := p.groups[id]
	return decided && g.isTimeout()
}

// failed presents a failed attempt: none follows once its branch has ended. See [store.ChildFailure].
func (p *presentation) failed(row *store.StepRow) {
	if ended, _ := p.ended(row.StepID); ended && p.latest[row.StepID] == row {
		row.WakeAt = time.Time{}
	}
	switch {
	case row.Kind != store.KindChild:
	case row.ChildRunID == uuid.Nil: // its start was refused
		row.Output = nil
	default:
		row.Status, row.Output = store.ReadChildFailure(row.Output)
	}
}

// ended reports whether the run, or a branch that the step is in, has ended, and when. The time is zero if it is not
// known.
func (p *presentation) ended(step string) (ended bool, at time.Time) {
	note := func(end time.Time) {
		if !ended || end.Before(at) {
			at = end
		}
		ended = true
	}
	for i := range len(step) {
		if step[i] != '/' {
			continue
		}
		branch := step[:i]
		if at, failed := p.branches[branch]; failed {
			note(at)
		}
		if slash := strings.LastIndexByte(branch, '/'); slash >= 0 {
			if g, decided := p.groups[branch[:slash]]; decided && g.ends(branch[slash+1:]) {
				note(g.at)
			}
		}
	}
	switch {
	case !ended && !p.run.FinishedAt.IsZero():
		return true, p.run.FinishedAt
	case !ended && p.run.Outcome != nil: // only its compensations go on
		return true, time.Time{}
	}
	return ended, at
}

package model

import (
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/store"
)

// suspectFrom is from which recovery on a run is a crash-loop suspect.
const suspectFrom = 3

// Claimable returns the runs that a claim may take: due, not paused, and of a version that the worker has.
func (m *Model) Claimable(req store.ClaimRequest) (runs []*Run) {
	for _, r := range m.all() {
		i := slices.IndexFunc(req.Types, func(t store.WorkflowVersions) bool { return t.Type == r.Type })
		if r.Active() && r.At == Due && !r.Paused && i >= 0 && (r.Version == 0 || slices.Contains(req.Types[i].Versions, r.Version)) &&
			(!req.NoSuspects || r.Recoveries < suspectFrom) {
			runs = append(runs, r)
		}
	}
	return runs
}

// SetsBack reports whether a claim lets the run wait instead of taking it, because it may kill its workers.
func (r *Run) SetsBack() bool { return r.Status == store.Running && r.Recoveries+1 >= suspectFrom }

// Claim checks what a claim has taken, and which runs it has set back, and does the same. Which of the runs of one priority it takes is not the
// model's concern. A claim beside another call may pass over runs, because it skips those that are locked.
func (m *Model) Claim(req store.ClaimRequest, taken []*store.ClaimedRun, back []uuid.UUID, beside bool) error {
	may := m.Claimable(req)
	if want := min(req.Limit, len(may)); len(taken)+len(back) > want || len(taken)+len(back) < want && !beside {
		return fmt.Errorf("the claim took %d runs and set back %d, of %d that are claimable; want %d", len(taken), len(back), len(may), want)
	}
	lowest, touched := 0, map[uuid.UUID]bool{}
	for _, id := range back {
		touched[id] = true
		r := m.Runs[id]
		if !slices.Contains(may, r) || !r.SetsBack() {
			return fmt.Errorf("the claim set back run %v, which is %+v", id, r)
		}
		lowest = max(lowest, r.Priority)
	}
	for _, c := range taken {
		if touched[c.RunID] {
			return fmt.Errorf("run %v was taken twice", c.RunID)
		}
		touched[c.RunID] = true
		if err := m.checkClaimed(req, may, c); err != nil {
			return err
		}
		lowest = max(lowest, m.Runs[c.RunID].Priority)
	}
	for _, r := range may {
		if !touched[r.ID] && r.Priority < lowest && !beside {
			return fmt.Errorf("the claim took a run of priority %d and left %v of priority %d", lowest, r.ID, r.Priority)
		}
	}
	for _, id := range back {
		m.Runs[id].recover()
		m.Runs[id].Status, m.Runs[id].At, m.Runs[id].Lease, m.Runs[id].Worker = store.Pending, Later, uuid.Nil, uuid.Nil
	}
	for _, c := range taken {
		r := m.Runs[c.RunID]
		r.recover()
		r.Status, r.At, r.Lease, r.Worker, r.Started, r.Version = store.Running, Later, c.Lease, req.Worker, true, c.Version
	}
	return nil
}

// recover counts a claim from a dead worker.
func (r *Run) recover() {
	if r.Status == store.Running && (r.Recoveries < suspectFrom || r.Suspect == r.Lease) {
		r.Recoveries++
	}
}

// checkClaimed compares what the claim says of a run with the model before the claim.
func (m *Model) checkClaimed(req store.ClaimRequest, may []*Run, c *store.ClaimedRun) error {
	r := m.Runs[c.RunID]
	if !slices.Contains(may, r) || r.SetsBack() {
		return fmt.Errorf("the claim took run %v, which is %+v", c.RunID, r)
	}
	want := *r
	want.recover()
	version := r.Version
	if version == 0 {
		version = 1
	}
	switch {
	case c.Wakeups != want.Wakeups, c.Attempts != want.Attempts, c.Recoveries != want.Recoveries, c.CancelRequested != want.Cancelling:
		return fmt.Errorf("claimed as %+v, want %+v", c, want)
	case c.Version != version, c.Fresh == want.Started, c.ParentRunID != want.Parent, c.ExternalID != want.External:
		return fmt.Errorf("claimed as %+v, want %+v", c, want)
	case !slices.Equal(c.Lease[:15], req.Lease[:15]):
		return fmt.Errorf("claimed under lease %v, asked for %v", c.Lease, req.Lease)
	}
	return nil
}

// Extend extends a lease, and reports whether it has: if it is held, and past half of its timeout.
func (m *Model) Extend(h store.HeldRun) bool {
	r := m.Runs[h.RunID]
	if !r.Holds(h.Lease) || r.At == Later {
		return false
	}
	r.At = Later
	return true
}

// BeginSuspect notes that a crash-loop suspect begins.
func (m *Model) BeginSuspect(h store.HeldRun) {
	if r := m.Runs[h.RunID]; r.Holds(h.Lease) {
		r.Suspect = h.Lease
	}
}

// Release declares a worker dead, and returns how many runs it has made due.
func (m *Model) Release(worker uuid.UUID) (released int) {
	m.Offline[worker] = true
	for _, r := range m.all() {
		if r.Status == store.Running && r.Worker == worker && !r.Paused && r.At != Due {
			r.At = Due
			released++
		}
	}
	return released
}

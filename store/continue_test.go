package store

import (
	"github.com/google/uuid"

	"github.com/kagzi/kagzi/store/internal/plans"
)

// continuationPlans are those of the statements by which runs continue.
func continuationPlans(s *Store, ids []uuid.UUID) []plans.Statement {
	var ended []*Suspension
	var requests []reopened
	for _, id := range ids {
		p := &Suspension{RunID: id, Lease: uuid.New(), Next: &Continuation{Epoch: 1}}
		ended = append(ended, p)
		requests = append(requests, reopened{ReopenRequest{Name: "#add", Sequence: 1}, p})
	}
	byRun := map[string][]string{runsKey: {"run_id", "namespace_id"}}
	steps := plans.Both(byRun, map[string][]string{stepsKey: {"run_id", "namespace_id"}})
	values := plans.Both(steps, map[string][]string{"step_runs_values": {"run_id", "namespace_id"}})
	return []plans.Statement{
		plans.Of("continueRuns", continueRuns, continueColumns.args(s.namespace, ended), byRun),
		plans.Of("deleteBefore", deleteBefore, deleteBeforeColumns.args(s.namespace, ended), steps),
		plans.Of("keepPast", keepPast, keepPastColumns.args(s.namespace, ended), steps),
		plans.Of("deleteValues", deleteValues, deleteValuesColumns.args(s.namespace, ended), values),
		plans.Of("keepValues", keepValues, keepValuesColumns.args(s.namespace, ended), values),
		plans.Of("leaveWaits", leaveWaits, leaveWaitsColumns.args(s.namespace, ended), plans.Both(byRun,
			map[string][]string{
				"event_waits_run":  {"run_id", "namespace_id"},
				"event_waits_pkey": {"topic", "event_id", "run_id", "step_hash", "namespace_id"},
			})),
		plans.Of("dropAnswers", dropAnswers, dropAnswersColumns.args(s.namespace, ended), plans.Both(byRun,
			map[string][]string{signalsKey: {"run_id", "namespace_id"}})),
		plans.Of("reopenRequests", reopenRequests, reopenColumns.args(s.namespace, requests), plans.Both(byRun,
			map[string][]string{
				signalsKey:          {"run_id", "name", "sequence", "namespace_id"},
				"step_runs_replies": {"run_id", "sequence", "namespace_id"},
			})),
	}
}

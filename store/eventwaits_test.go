package store

import (
	"github.com/google/uuid"

	"github.com/kagzi/kagzi/store/internal/plans"
)

// eventWaitPlans are those of the statements by which runs wait for events.
func eventWaitPlans(s *Store, ids []uuid.UUID) []plans.Statement {
	var records []*Record
	var waits []EventWait
	for _, id := range ids {
		waits = append(waits, EventWait{WaitedEvent{"topic", "id"}, id, "step"})
		records = append(records, &Record{StepRow: StepRow{RunID: id, StepID: "step"}, Awaited: "step"})
	}
	byEvent := map[string][]string{"event_waits_pkey": {"topic", "event_id", "namespace_id"}}
	byRun := map[string][]string{"event_waits_run": {"run_id", "step_hash", "namespace_id"}}
	byWait := map[string][]string{
		"event_waits_pkey": {"topic", "event_id", "run_id", "step_hash", "namespace_id"},
		"event_waits_run":  {"run_id", "step_hash", "namespace_id"},
	}
	return []plans.Statement{
		plans.Of("noteAwaited", noteAwaited, []any{s.namespace, []string{"topic"}, []string{"id"}, uuid.New()},
			byEvent),
		plans.Of("waitsForEvent", waitsForEvent, []any{s.namespace, "topic", "id", ids[0], ids[0], 500}, byEvent),
		plans.Of("insertWait", insertWait, []any{s.namespace, "topic", "id", ids[0], "step", ids[0]},
			map[string][]string{runsKey: {"run_id", "namespace_id"}}),
		plans.Of("deleteTold", deleteTold, deleteToldColumns.args(s.namespace, waits), byWait),
		plans.Of("endWaits", endWaits, endWaitColumns.args(s.namespace, records), byRun),
	}
}

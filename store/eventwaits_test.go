package store

import (
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/store/internal/clause"
	"github.com/kagzi/kagzi/store/internal/plans"
)

// eventWaitPlans are those of the statements by which runs wait for events.
func eventWaitPlans(s *Store, ids []uuid.UUID) []plans.Statement {
	var records []*Record
	var waits []EventWait
	var registered []*EventWait
	for _, id := range ids {
		w := EventWait{WaitedEvent{"topic", "id"}, id, "step"}
		waits, registered = append(waits, w), append(registered, &w)
		records = append(records, &Record{StepRow: StepRow{RunID: id, StepID: "step"}, Awaited: "step"})
	}
	byEvent := map[string][]string{"event_waits_pkey": {"topic", "event_id", "namespace_id"}}
	byRun := map[string][]string{"event_waits_run": {"run_id", "step_hash", "namespace_id"}}
	byWait := map[string][]string{
		"event_waits_pkey": {"topic", "event_id", "run_id", "step_hash", "namespace_id"},
		"event_waits_run":  {"run_id", "step_hash", "namespace_id"},
	}
	byID := map[string][]string{}
	for i := range clause.EventParts {
		byID[fmt.Sprintf("events_%d_pkey", i)] = []string{"event_id", "namespace_id"}
	}
	return []plans.Statement{
		plans.Of("findEvent", findEvent, []any{s.namespace, "topic", "id"}, byID),
		plans.Of("findEvents", findEvents, []any{s.namespace, []string{"topic"}, []string{"id"}, largeEvent}, byID),
		plans.Of("noteAwaited", noteAwaited, []any{s.namespace, []string{"topic"}, []string{"id"}, uuid.New()},
			byEvent),
		plans.Of("waitsForEvent", waitsForEvent, []any{s.namespace, "topic", "id", ids[0], ids[0], 500}, byEvent),
		plans.Of("insertWaits", insertWaits, waitColumns.args(s.namespace, registered),
			map[string][]string{runsKey: {"run_id", "namespace_id"}}),
		plans.Of("deleteTold", deleteTold, deleteToldColumns.args(s.namespace, waits), byWait),
		plans.Of("endWaits", endWaits, endWaitColumns.args(s.namespace, records), byRun),
	}
}

// After an error of the connection it is not known which messages are sent: none of their waits may end.
func TestMessagesOfALostConnectionAreHeld(t *testing.T) {
	t.Parallel()
	s := open(t)
	runs := running(t, s, 2)
	var messages []Message
	for _, r := range runs {
		messages = append(messages, Message{RunID: r.RunID, Name: "##a", ID: "##a"})
	}
	sent, err := s.Messages.SendAll(t.Context(), messages)
	if err != nil || len(sent.Stored) != 2 || len(sent.Held) != 0 {
		t.Fatalf("sent %+v, %v", sent, err)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), s.pool.Config())
	if err != nil {
		t.Fatal(err)
	}
	pool.Close()
	if sent, err = New(pool, s.Namespace()).Messages.SendAll(t.Context(), messages); err == nil || len(sent.Held) != 2 {
		t.Errorf("over a closed pool: %+v, %v", sent, err)
	}
}

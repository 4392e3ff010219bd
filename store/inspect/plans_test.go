package inspect

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/store/internal/clause"
	"github.com/kagzi/kagzi/store/internal/plans"
)

// plannedViews returns the statements that only read, as plannedStatements does.
func plannedViews(s *both, ids []uuid.UUID) []plans.Statement {
	claimed := []string{"task_queue", "namespace_id", "workflow_type", "priority", "available_at"}
	byKey := map[string][]string{plans.RunsKey: {"run_id", "namespace_id"}}
	byStep := map[string][]string{plans.StepsKey: {"run_id", "namespace_id"}}
	consuming := map[string][]string{
		"consumers_pkey": {"consumer", "namespace_id"}, "consumers_key": {"run_key", "namespace_id"},
		"subscriptions_pkey":     {"topic", "consumer", "namespace_id"},
		"subscriptions_consumer": {"consumer", "namespace_id"}, "run_keys_pkey": {
			"key_scope", "run_key",
			"namespace_id",
		}, "run_keys_paused": {"key_scope", "run_key", "namespace_id"}, plans.PausesKey: {"task_queue", "namespace_id"},
		plans.RunsKey: {"run_id", "namespace_id"},
	}
	eventsByTopic := map[string][]string{}
	for i := range clause.EventParts {
		consuming[fmt.Sprintf("events_%d_topic_namespace_id_position_idx", i)] = []string{
			"topic", "namespace_id",
			"position",
		}
		eventsByTopic[fmt.Sprintf("events_%d_topic_namespace_id_position_idx", i)] = []string{"topic"}
	}
	typeNames, soon := []string{"type", "other", "third"}, []any{pg.Micros(time.Minute)}
	pauses := map[string][]string{
		plans.PausesKey: {"task_queue", "namespace_id"}, plans.KeysKey: {"key_scope", "run_key", "namespace_id"},
	}
	ofLimit := []string{"limit_name", "namespace_id"}
	placed := plans.Both(byKey, map[string][]string{
		"limits_pkey": ofLimit, "limit_places_state": ofLimit, "limit_places_pkey": {"run_id", "namespace_id"},
	})
	keyed := map[string][]string{
		plans.RunsKey: byKey[plans.RunsKey], plans.KeyedIndex: {"key_scope", "namespace_id", "run_key"},
		plans.SlotsIndex: {"task_queue", "namespace_id"}, "workflow_runs_group_slot": {"run_key", "namespace_id"},
		plans.KeysKey: {"key_scope", "run_key", "namespace_id"}, plans.QueuesKey: {"task_queue", "namespace_id"},
	}
	states := plans.Both(keyed, map[string][]string{
		plans.ClaimIndex: claimed[:3], plans.SlotsIndex: {"task_queue", "namespace_id"},
		"run_keys_line": {"namespace_id"},
		plans.KeysKey:   {"namespace_id"}, plans.QueuesKey: {"namespace_id"},
	})
	maps.Copy(states, map[string][]string{plans.KeysKey: {"namespace_id"}, plans.QueuesKey: {"namespace_id"}})
	listed := func(name string, f KeyFilter) plans.Statement {
		f.Queue, f.Limit = "queue", 100
		sql, args := f.candidates(s.namespace)
		return plans.Of(name, sql, args, states)
	}
	days := Outcomes{At: time.Now()}
	days.begin(day, 14)
	return append(outcomeStatements(s, &days),
		plans.Of("queueStates", queueStates, []any{s.namespace, clause.MaxQueues, maxSlotsCounted}, states),
		plans.Of(
			"keysToClaim", keysToClaim,
			[]any{s.namespace, clause.MaxQueues, keysPerLine},
			map[string][]string{"run_keys_line": {"namespace_id"}, "key_changes_pkey": {"namespace_id"}},
		),
		plans.Of(
			"dueKeys", dueKeys,
			[]any{s.namespace, typeNames, typeNames, maxSlotsCounted, runsPerKey},
			plans.Both(keyed, map[string][]string{
				plans.PausesKey:   {"task_queue", "namespace_id"},
				"run_keys_paused": {"key_scope", "run_key", "namespace_id"},
			}),
		),
		plans.Of(
			"idleSlots", idleSlots,
			[]any{s.namespace, "queue", maxSlotsCounted},
			map[string][]string{
				plans.SlotsIndex: {"task_queue", "namespace_id"},
				"workers_pkey":   {"worker_id", "namespace_id"}, "workers_live": {"worker_id", "namespace_id"},
			},
		),
		plans.Of(
			"obstacle", obstacle,
			[]any{s.namespace, ids[0], maxSlotsCounted},
			plans.Both(map[string][]string{plans.PausesKey: {"task_queue", "namespace_id"}}, keyed),
		),
		listed("keysByName", KeyFilter{}),
		listed("keysByPrefix", KeyFilter{Prefix: "key-1"}),
		listed("keysFullest", KeyFilter{Order: Fullest}),
		listed("keysWaiting", KeyFilter{Order: LongestWaiting}),
		plans.Of("keyStates", keyStates, KeyFilter{Queue: "queue", Limit: 100}.args(s.namespace, typeNames), keyed),
		plans.Of("stepsUnderWay", stepsUnderWay, []any{s.namespace, ids[0], uuid.New(), 4}, byStep),
		plans.Of("doubts", doubts, []any{s.namespace, 10}, map[string][]string{
			plans.RunsKey:     {"run_id", "namespace_id"},
			"step_runs_doubt": {"namespace_id"},
		}),
		plans.Of("setAside", setAside, []any{s.namespace, 10}, map[string][]string{
			plans.RunsKey:       {"run_id", "namespace_id"},
			"signals_set_aside": {"namespace_id"},
		}),
		plans.Of(
			"countSetAside", countSetAside,
			[]any{s.namespace, ids[0]},
			map[string][]string{"signals_set_aside": {"run_id", "namespace_id"}},
		),
		plans.Of(
			"messagesOfRun", messagesOfRun,
			[]any{s.namespace, ids[0], "", int64(-1), true, 100},
			map[string][]string{
				plans.SignalsKey:    {"run_id", "namespace_id", "ROW(name, sequence)"},
				"step_runs_replies": {"run_id", "sequence", "namespace_id"},
			},
		),
		plans.Of(
			"messagesOfName", messagesOfName,
			[]any{s.namespace, ids[0], "signal", int64(-1), true, 100},
			map[string][]string{
				plans.SignalsKey:    {"run_id", "namespace_id", "name", "sequence"},
				"step_runs_replies": {"run_id", "sequence", "namespace_id"},
			},
		),
		// the latter reads the run's messages
		plans.Of(
			"messagePlace", messagePlace,
			[]any{s.namespace, ids[0], "id"},
			map[string][]string{
				"signals_signal_id": {"signal_id", "run_id", "namespace_id"},
				plans.SignalsKey:    {"run_id", "namespace_id"},
			},
		),
		plans.Of(
			"entryTime", entryTime,
			[]any{s.namespace, ids[0]},
			map[string][]string{"audit_log_pkey": {"entry_id", "namespace_id"}},
		),
		plans.Of(
			"pausedRuns", pausedRuns,
			[]any{s.namespace, 1000},
			map[string][]string{"workflow_runs_paused": {"namespace_id"}},
		),
		plans.Of(
			"consumerStates", consumerStates,
			[]any{s.namespace, mostListed, mostEvents, mostEventsCounted},
			consuming,
		),
		plans.Of(
			"reservedEvents", reservedEvents,
			[]any{s.namespace, mostListed, mostReserves},
			plans.Both(byStep, consuming),
		),
		plans.Of("topicStates", topicStates, []any{
			s.namespace, 10 * mostListed, mostListed, mostEvents, mostEventsCounted,
			mostNamed,
		}, plans.Both(eventsByTopic, map[string][]string{"subscriptions_pkey": {"topic", "namespace_id"}})),
		plans.Of("lateConsumers", lateConsumers, []any{s.namespace, mostListed, pg.Micros(time.Minute), 10}, consuming),
		plans.Of(
			"topicsWithoutConsumers", topicsWithoutConsumers,
			[]any{s.namespace, 10 * mostListed, 10},
			plans.Both(eventsByTopic, map[string][]string{"subscriptions_pkey": {"topic", "namespace_id"}}),
		),
		plans.Of("activeQueues", activeQueues, []any{clause.MaxQueues},
			map[string][]string{plans.ClaimIndex: {"task_queue"}}),
		plans.Of(
			"ownQueues", ownQueues,
			[]any{s.namespace, clause.MaxQueues},
			map[string][]string{plans.ClaimIndex: {"task_queue", "namespace_id"}},
		),
		plans.Of(
			"dueWork", dueWork,
			[]any{s.namespace, typeNames[:3], typeNames[:3], maxDueCounted},
			plans.Both(pauses, map[string][]string{plans.ClaimIndex: claimed}),
		),
		plans.Of("completedNamespaces", completedNamespaces, nil, map[string][]string{"workflow_runs_completed": nil}),
		plans.Of("stoppedNamespaces", stoppedNamespaces, nil, map[string][]string{"workflow_runs_stopped": nil}),
		plans.Of("waitingNamespaces", waitingNamespaces, nil, map[string][]string{"workflow_runs_waiting": nil}),
		plans.Of("claimableNamespaces", claimableNamespaces, nil, map[string][]string{plans.ClaimIndex: nil}),
		plans.Of(
			"otherNamespaces", otherNamespaces, nil,
			map[string][]string{plans.DueIndex: nil, "workers_live": nil},
		),
		plans.Of(
			"dueRuns", dueRuns,
			[]any{"queue", typeNames[:3], pg.Micros(time.Minute)},
			map[string][]string{plans.ClaimIndex: {"task_queue"}, plans.PausesKey: {"task_queue", "namespace_id"}},
		),
		plans.Of(
			"dueLines", dueLines,
			[]any{"queue", pg.Micros(time.Minute)},
			map[string][]string{"run_keys_line": {"key_scope"}},
		),
		plans.Of(
			"changedKeys", changedKeys,
			[]any{"queue", typeNames[:1]},
			map[string][]string{"key_changes_pkey": {"key_scope"}},
		),
		plans.Of("overdueRuns", overdueRuns, soon, map[string][]string{"workflow_runs_deadline": nil}),
		plans.Of("unbegunRuns", unbegunRuns, soon, map[string][]string{"workflow_runs_start_by": nil}),
		plans.Of(
			"followingRuns", followingRuns,
			[]any{[]string{store.Pending, store.Sleeping, store.Running}},
			map[string][]string{
				"workflow_runs_queued":       nil,
				"workflow_runs_active_fired": {"schedule_id", "namespace_id"},
			},
		),
		plans.Of("waitingSteps", waitingSteps, []any{"WAITING"}, map[string][]string{"limit_places_state": nil}),
		plans.Of(
			"duties", duties, soon,
			map[string][]string{
				plans.DueIndex: {"next_at"}, "workflow_runs_compensating": {"available_at"},
				"workflow_runs_deleted": nil, "workers_live": nil, "workers_release": {"release_at"},
				"awaited_events_pkey": nil,
			},
		),
		plans.Of(
			"unextendedRuns", unextendedRuns,
			[]any{s.namespace, typeNames[:3], typeNames[:3], dueSoonRead, 20},
			map[string][]string{
				plans.ClaimIndex: claimed, "workers_live": {"namespace_id"},
				"workers_pkey": {"worker_id", "namespace_id"},
			},
		),
		plans.Of(
			"keysWithWaiting", keysWithWaiting,
			[]any{s.namespace, maxStandingKeys},
			map[string][]string{plans.KeyedIndex: {"key_scope", "namespace_id"}},
		),
		plans.Of(
			"standingKeys", standingKeys,
			[]any{s.namespace, typeNames, typeNames, maxSlotsCounted, pg.Micros(time.Minute), 20},
			plans.Both(pauses, keyed),
		),
		plans.Of(
			"runsBehindKeys", runsBehindKeys,
			[]any{s.namespace, typeNames[:2], typeNames[:2], ids[:2], runsBehind},
			plans.Both(pauses, keyed),
		),
		plans.Of(
			"activeWork", activeWork,
			[]any{s.namespace, typeNames[:3], typeNames[:3], maxActiveRead},
			map[string][]string{plans.ClaimIndex: claimed[:4]},
		),
		plans.Of(
			"activeKeyed", activeKeyed,
			[]any{s.namespace, maxActiveKeys, minKeyRead, maxActiveRead, maxActiveTotal},
			map[string][]string{plans.KeyedIndex: {"key_scope", "namespace_id"}},
		),
		plans.Of(
			"routes", routes,
			[]any{s.namespace, clause.MaxQueues},
			map[string][]string{plans.ClaimIndex: {"task_queue"}},
		),
		plans.Of(
			"ownRoutes", ownRoutes,
			[]any{s.namespace, clause.MaxQueues},
			map[string][]string{plans.ClaimIndex: {"task_queue", "namespace_id"}},
		),
		plans.Of(
			"routeCounts", routeCounts,
			[]any{s.namespace, typeNames, typeNames, []int32{1, 2, 3}, []int{10, 10, 10}, []int{10, 0, 10}},
			plans.Both(pauses, map[string][]string{plans.ClaimIndex: claimed}),
		),
		plans.Of(
			"sampledKeys", sampledKeys,
			[]any{s.namespace, mostKeys},
			map[string][]string{plans.KeyedIndex: {"key_scope", "namespace_id"}},
		),
		plans.Of(
			"keyedCounts", keyedCounts,
			[]any{s.namespace, typeNames, typeNames, runsOfKey},
			plans.Both(pauses, map[string][]string{plans.KeyedIndex: {"key_scope", "namespace_id", "run_key"}}),
		),
		plans.Of(
			"newestRuns", newestRuns,
			[]any{s.namespace, newestWithin.Milliseconds(), mostNewest},
			map[string][]string{plans.RunsKey: {"run_id"}},
		),
		plans.Of(
			"ownNewestRuns", ownNewestRuns,
			[]any{s.namespace, newestWithin.Milliseconds(), mostNewest},
			map[string][]string{plans.RunsKey: {"run_id", "namespace_id"}},
		),
		plans.Of(
			"activePaused", activePaused,
			[]any{s.namespace, maxActiveRead},
			map[string][]string{"workflow_runs_paused": {"namespace_id"}},
		),
		plans.Of("stuckLimits", stuckLimits, []any{s.namespace, clause.MaxQueues}, plans.Both(pauses, placed)),
		plans.Of(
			"overdueSchedules", overdueSchedules,
			[]any{s.namespace, pg.Micros(time.Minute), 10},
			map[string][]string{plans.DueIndex: {"next_at", "namespace_id"}},
		),
		plans.Of("brokenSchedules", brokenSchedules, []any{s.namespace, 10},
			map[string][]string{plans.NamesIndex: {"namespace_id"}}),
		plans.Of(
			"suspects", suspects,
			[]any{s.namespace, maxDueCounted},
			map[string][]string{"workflow_runs_unread": {"namespace_id"}},
		),
		plans.Of(
			"inboxFull", inboxFull,
			[]any{s.namespace, ids[0], store.MostUnread},
			map[string][]string{plans.SignalsKey: {"run_id", "namespace_id"}},
		),
		plans.Of(
			"fullInboxes", fullInboxes,
			[]any{s.namespace, 20, store.MostUnread},
			map[string][]string{
				"workflow_runs_inbox_full": {"namespace_id"},
				plans.SignalsKey:           {"run_id", "namespace_id"},
			},
		),
		plans.Of(
			"unreadRuns", unreadRuns,
			[]any{s.namespace, maxDueCounted},
			map[string][]string{"workflow_runs_unread": {"namespace_id"}},
		),
		plans.Of(
			"recentFailures", recentFailures,
			[]any{s.namespace, pg.Micros(time.Hour), maxKinds, maxFailedCounted},
			map[string][]string{"workflow_runs_failed": {"namespace_id", "error_kind"}},
		),
		plans.Of(
			"failedRuns", failedRuns,
			[]any{s.namespace, pg.Micros(time.Hour), maxKinds, maxFailedCounted},
			map[string][]string{"workflow_runs_failed": {"namespace_id", "error_kind"}},
		),
		plans.Of(
			"uncompensatedRuns", uncompensatedRuns,
			[]any{s.namespace, maxDueCounted},
			map[string][]string{
				"workflow_runs_failed": {"namespace_id", "error_kind"},
				plans.StepsKey:         {"run_id", "namespace_id"},
			},
		),
		plans.Of(
			"refusedCompensations", refusedCompensations,
			[]any{s.namespace, maxDueCounted},
			map[string][]string{"workflow_runs_compensating": {"available_at", "namespace_id"}},
		),
		plans.Of(
			"quarantined", quarantined,
			[]any{s.namespace, maxDueCounted, pg.Micros(time.Hour), 5},
			map[string][]string{"workflow_runs_quarantined": {"error_kind", "namespace_id"}},
		),
	)
}

func TestPlansOfViewsOfManyRows(t *testing.T) {
	t.Parallel()
	plans.Check(t, func(pool *pgxpool.Pool, ids []uuid.UUID) []plans.Statement {
		return plannedViews(newBoth(pool, "test"), ids)
	})
}

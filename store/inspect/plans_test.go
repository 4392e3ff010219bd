package inspect

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// plannedViews returns the statements that only read, as plannedStatements does.
func plannedViews(s *both, ids []uuid.UUID) []planned {
	claimed := []string{"task_queue", "namespace_id", "workflow_type", "priority", "available_at"}
	byKey := map[string][]string{runsKey: {"run_id", "namespace_id"}}
	byStep := map[string][]string{stepsKey: {"run_id", "namespace_id"}}
	consuming := map[string][]string{
		"consumers_pkey": {"consumer", "namespace_id"}, "consumers_key": {"run_key", "namespace_id"},
		"subscriptions_pkey":     {"topic", "consumer", "namespace_id"},
		"subscriptions_consumer": {"consumer", "namespace_id"}, "run_keys_pkey": {
			"key_scope", "run_key",
			"namespace_id",
		}, pausesKey: {"run_key", "namespace_id"}, runsKey: {"run_id", "namespace_id"},
	}
	eventsByTopic := map[string][]string{}
	for i := range clause.EventParts {
		consuming[fmt.Sprintf("events_%d_topic_namespace_id_position_idx", i)] = []string{
			"topic", "namespace_id",
			"position",
		}
		eventsByTopic[fmt.Sprintf("events_%d_topic_namespace_id_position_idx", i)] = []string{"topic"}
	}
	typeNames := []string{"type", "other", "third"}
	pauses := map[string][]string{pausesKey: {"run_key", "namespace_id"}}
	ofLimit := []string{"limit_name", "namespace_id"}
	placed := withKey(byKey, map[string][]string{
		"limits_pkey": ofLimit, "limit_places_held": ofLimit, "limit_places_line": ofLimit,
		"limit_places_timed": ofLimit, "limit_places_pkey": {"run_id", "namespace_id"},
	})
	keyed := map[string][]string{
		runsKey: byKey[runsKey], keyedIndex: {"key_scope", "namespace_id", "run_key"},
		slotsIndex: {"task_queue", "namespace_id"}, "workflow_runs_group_slot": {"run_key", "namespace_id"},
		keysKey: {"key_scope", "run_key", "namespace_id"}, queuesKey: {"task_queue", "namespace_id"},
	}
	states := withKey(keyed, map[string][]string{
		claimIndex: claimed[:3], slotsIndex: {"task_queue", "namespace_id"}, "run_keys_line": {"namespace_id"},
		keysKey: {"namespace_id"}, queuesKey: {"namespace_id"},
	})
	maps.Copy(states, map[string][]string{keysKey: {"namespace_id"}, queuesKey: {"namespace_id"}})
	listed := func(name string, f KeyFilter) planned {
		f.Queue, f.Limit = "queue", 100
		sql, args := f.statement(s.namespace)
		return planned{name, sql, args, states}
	}
	return []planned{
		{"queueStates", queueStates, []any{s.namespace, clause.MaxQueues, maxSlotsCounted}, states},
		{
			"dueKeys", dueKeys,
			[]any{s.namespace, clause.MaxQueues, keysPerLine, runsPerKey, maxSlotsCounted},
			withKey(map[string][]string{
				pausesKey:  {"run_key", "namespace_id"},
				keyedIndex: {"key_scope", "namespace_id", "run_key"}, "key_changes_pkey": {"namespace_id"},
			}, states),
		},
		{
			"idleSlots", idleSlots,
			[]any{s.namespace, "queue", maxSlotsCounted},
			map[string][]string{
				slotsIndex:     {"task_queue", "namespace_id"},
				"workers_pkey": {"worker_id", "namespace_id"}, "workers_live": {"worker_id", "namespace_id"},
			},
		},
		{
			"obstacle", obstacle,
			[]any{s.namespace, ids[0], maxSlotsCounted},
			withKey(map[string][]string{pausesKey: {"namespace_id"}}, keyed),
		},
		listed("listKeysByName", KeyFilter{}),
		listed("listKeysByPrefix", KeyFilter{Prefix: "key-1"}),
		listed("listKeysFullest", KeyFilter{Order: Fullest}),
		listed("listKeysWaiting", KeyFilter{Order: LongestWaiting}),
		{"stepsUnderWay", stepsUnderWay, []any{s.namespace, ids[0], uuid.New(), 4}, byStep},
		{"setAside", setAside, []any{s.namespace, 10}, map[string][]string{
			runsKey:             {"run_id", "namespace_id"},
			"signals_set_aside": {"namespace_id"},
		}},
		{
			"countSetAside", countSetAside,
			[]any{s.namespace, ids[0]},
			map[string][]string{"signals_set_aside": {"run_id", "namespace_id"}},
		},
		{
			"messagesOfRun", messagesOfRun,
			[]any{s.namespace, ids[0], "", int64(-1), true, 100},
			map[string][]string{signalsKey: {"run_id", "namespace_id", "ROW(name, sequence)"}},
		},
		{
			"messagesOfName", messagesOfName,
			[]any{s.namespace, ids[0], "signal", int64(-1), true, 100},
			map[string][]string{signalsKey: {"run_id", "namespace_id", "name", "sequence"}},
		},
		// the latter reads the run's messages
		{
			"messagePlace", messagePlace,
			[]any{s.namespace, ids[0], "id"},
			map[string][]string{
				"signals_signal_id": {"signal_id", "run_id", "namespace_id"},
				signalsKey:          {"run_id", "namespace_id"},
			},
		},
		{
			"entryTime", entryTime,
			[]any{s.namespace, ids[0]},
			map[string][]string{"audit_log_pkey": {"entry_id", "namespace_id"}},
		},
		{
			"pausedRuns", pausedRuns,
			[]any{s.namespace, 1000},
			map[string][]string{"workflow_runs_paused": {"namespace_id"}},
		},
		{
			"consumerStates", consumerStates,
			[]any{s.namespace, mostListed, mostEvents, mostEventsCounted, mostReserves},
			withKey(map[string][]string{stepsKey: {"run_id", "namespace_id"}}, consuming),
		},
		{"topicStates", topicStates, []any{
			s.namespace, 10 * mostListed, mostListed, mostEvents, mostEventsCounted,
			mostNamed,
		}, withKey(eventsByTopic, map[string][]string{"subscriptions_pkey": {"topic", "namespace_id"}})},
		{"lateConsumers", lateConsumers, []any{s.namespace, mostListed, pg.Micros(time.Minute), 10}, consuming},
		{
			"topicsWithoutConsumers", topicsWithoutConsumers,
			[]any{s.namespace, 10 * mostListed, 10},
			withKey(eventsByTopic, map[string][]string{"subscriptions_pkey": {"topic", "namespace_id"}}),
		},
		{"activeQueues", activeQueues, []any{clause.MaxQueues}, map[string][]string{claimIndex: {"task_queue"}}},
		{
			"ownQueues", ownQueues,
			[]any{s.namespace, clause.MaxQueues},
			map[string][]string{claimIndex: {"task_queue", "namespace_id"}},
		},
		{
			"dueWork", dueWork,
			[]any{s.namespace, typeNames[:3], typeNames[:3], maxDueCounted},
			withKey(pauses, map[string][]string{claimIndex: claimed}),
		},
		{
			"unextendedRuns", unextendedRuns,
			[]any{s.namespace, typeNames[:3], typeNames[:3], dueSoonRead, 20},
			map[string][]string{
				claimIndex: claimed, "workers_live": {"namespace_id"},
				"workers_pkey": {"worker_id", "namespace_id"},
			},
		},
		{
			"standingKeys", standingKeys,
			[]any{
				s.namespace, maxStandingKeys, maxSlotsCounted, pg.Micros(time.Minute),
				runsBehind, 20,
			},
			withKey(pauses, withKey(map[string][]string{keyedIndex: {"key_scope", "namespace_id"}}, keyed)),
		},
		{
			"activeWork", activeWork,
			[]any{s.namespace, typeNames[:3], typeNames[:3], maxActiveRead},
			map[string][]string{claimIndex: claimed[:4]},
		},
		{
			"activeKeyed", activeKeyed,
			[]any{s.namespace, maxActiveKeys, minKeyRead, maxActiveRead, maxActiveTotal},
			map[string][]string{keyedIndex: {"key_scope", "namespace_id"}},
		},
		{
			"routeCounts", routeCounts,
			[]any{s.namespace, clause.MaxQueues, routeSample, mostOfRoutes},
			withKey(pauses, map[string][]string{claimIndex: {"task_queue"}}),
		},
		{
			"ownRouteCounts", ownRouteCounts,
			[]any{s.namespace, clause.MaxQueues, routeSample, mostOfRoutes},
			withKey(pauses, map[string][]string{claimIndex: {"task_queue", "namespace_id"}}),
		},
		{
			"keyedCounts", keyedCounts,
			[]any{s.namespace, mostKeys, keySample, mostOfKeys},
			withKey(pauses, map[string][]string{keyedIndex: {"key_scope", "namespace_id"}}),
		},
		{
			"newestRuns", newestRuns,
			[]any{s.namespace, newestWithin.Milliseconds(), mostNewest},
			map[string][]string{runsKey: {"run_id"}},
		},
		{
			"ownNewestRuns", ownNewestRuns,
			[]any{s.namespace, newestWithin.Milliseconds(), mostNewest},
			map[string][]string{runsKey: {"run_id", "namespace_id"}},
		},
		{
			"activePaused", activePaused,
			[]any{s.namespace, maxActiveRead},
			map[string][]string{"workflow_runs_paused": {"namespace_id"}},
		},
		{"stuckLimits", stuckLimits, []any{s.namespace, clause.MaxQueues}, withKey(pauses, placed)},
		{
			"overdueSchedules", overdueSchedules,
			[]any{s.namespace, pg.Micros(time.Minute), 10},
			map[string][]string{dueIndex: {"next_at", "namespace_id"}},
		},
		{"brokenSchedules", brokenSchedules, []any{s.namespace, 10}, map[string][]string{namesIndex: {"namespace_id"}}},
		{
			"suspects", suspects,
			[]any{s.namespace, maxDueCounted},
			map[string][]string{"workflow_runs_unread": {"namespace_id"}},
		},
		{
			"inboxFull", inboxFull,
			[]any{s.namespace, ids[0], store.MostUnread},
			map[string][]string{signalsKey: {"run_id", "namespace_id"}},
		},
		{
			"fullInboxes", fullInboxes,
			[]any{s.namespace, 20, store.MostUnread},
			map[string][]string{
				"workflow_runs_inbox_full": {"namespace_id"},
				signalsKey:                 {"run_id", "namespace_id"},
			},
		},
		{
			"unreadRuns", unreadRuns,
			[]any{s.namespace, maxDueCounted},
			map[string][]string{"workflow_runs_unread": {"namespace_id"}},
		},
		{
			"recentFailures", recentFailures,
			[]any{s.namespace, pg.Micros(time.Hour), maxKinds, maxFailedCounted},
			map[string][]string{"workflow_runs_failed": {"namespace_id", "error_kind"}},
		},
		{
			"uncompensatedRuns", uncompensatedRuns,
			[]any{s.namespace, maxDueCounted},
			map[string][]string{
				"workflow_runs_failed": {"namespace_id", "error_kind"},
				stepsKey:               {"run_id", "namespace_id"},
			},
		},
		{
			"refusedCompensations", refusedCompensations,
			[]any{s.namespace, maxDueCounted, clause.StartRefused, clause.EndRefused},
			map[string][]string{"workflow_runs_compensating": {"available_at", "namespace_id"}},
		},
		{
			"quarantined", quarantined,
			[]any{s.namespace, maxDueCounted, pg.Micros(time.Hour), 5},
			map[string][]string{"workflow_runs_quarantined": {"error_kind", "namespace_id"}},
		},
	}
}

func TestPlansOfViewsOfManyRows(t *testing.T) {
	t.Parallel()
	checkPlans(t, plannedViews)
}

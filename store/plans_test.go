package store

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/clause"
	"github.com/kagzi/kagzi/store/internal/plans"
)

const (
	claimIndex  = plans.ClaimIndex
	runsKey     = plans.RunsKey
	stepsKey    = plans.StepsKey
	signalsKey  = plans.SignalsKey
	eventsKey   = "run_events_pkey"
	externalID  = "workflow_runs_active_external_id"
	endedID     = "workflow_runs_ended_external_id"
	dueIndex    = plans.DueIndex
	namesIndex  = plans.NamesIndex
	scheduleKey = "schedules_pkey"
	firedIndex  = "workflow_runs_active_fired"
	queuedIndex = "workflow_runs_queued"
	parentIndex = "workflow_runs_parent"
	keyedIndex  = plans.KeyedIndex
	slotsIndex  = plans.SlotsIndex
	keysKey     = plans.KeysKey
	queuesKey   = plans.QueuesKey
	windowsKey  = "start_windows_pkey"
	itemsKey    = "start_items_pkey"
	pausesKey   = plans.PausesKey

	deadlineIndex = "workflow_runs_deadline"
)

// plannedStatements returns the statements to check, with the runs ids as arguments.
func plannedStatements(s *Store, ids []uuid.UUID) []plans.Statement {
	claimed := []string{"task_queue", "namespace_id", "workflow_type", "priority", "available_at"}
	byKey := map[string][]string{runsKey: {"run_id", "namespace_id"}}
	byPremise := map[string][]string{
		runsKey: {"run_id", "namespace_id"}, stepsKey: {"run_id", "step_id", "attempt_number", "namespace_id"},
		signalsKey: {"run_id", "name", "sequence", "namespace_id"},
	}
	byStep := map[string][]string{stepsKey: {"run_id", "namespace_id"}}
	byDoubt := map[string][]string{"step_runs_doubt": {"run_id", "namespace_id"}}
	byInput := map[string][]string{runsKey: {"run_id", "namespace_id"}, itemsKey: {"run_id", "namespace_id"}}
	byWindow := map[string][]string{runsKey: {"run_id", "namespace_id"}, windowsKey: {"window_id", "namespace_id"}}
	byAttempt := map[string][]string{stepsKey: {"run_id", "step_id", "attempt_number", "namespace_id"}}
	gone := map[string][]string{
		"limit_places_pkey": {"run_id", "namespace_id"}, runsKey: {"run_id", "namespace_id"},
		stepsKey: {"run_id", "namespace_id"}, signalsKey: {"run_id", "namespace_id"},
		eventsKey: {"run_id", "namespace_id"}, itemsKey: {"run_id", "namespace_id"},
		"event_waits_run": {"run_id", "namespace_id"},
	}
	keep := Retention{
		Completed: time.Hour, Failed: 2 * time.Hour,
		Workflows: map[string]time.Duration{"other": time.Minute},
	}
	lease := uuid.New()
	var records []*Record
	var suspensions []*Suspension
	var finishes, failures []*Finish
	var started, registered, publishings []*Record
	var leases, steps []string
	var messages []Message
	var attempts []int32
	var places []Place
	var waiting []*limitStep
	var windows []*openWindow
	var changes []*waitingChange
	for _, id := range ids {
		places = append(places, Place{RunID: id, Lease: lease, StepID: "step"})
		waiting = append(waiting, &limitStep{Place: Place{RunID: id, StepID: "step"}, units: 1})
		r := &ClaimedRun{RunID: id, Lease: lease, ParentRunID: id}
		records, suspensions, finishes = append(records, record(r, "step", "x")),
			append(suspensions, sleep(r, time.Hour)), append(finishes, finish(r))
		failures = append(failures, &Finish{
			RunID: id, Lease: lease, Status: Failed,
			Forget: []string{"step", "step/0"},
		})
		started = append(started, &Record{
			StepRow: StepRow{RunID: id, StepID: "child", ChildRunID: uuid.New()},
			Lease:   lease, Start: &NewRun{Spec: Spec{Queue: "queue", Type: "type", Priority: 3}},
		})
		registered = append(registered, registering(r, "step", 1))
		publishings = append(publishings, publishing(r, "step", 1, &NewEvent{Topic: "topic", ID: id.String()}))
		messages = append(messages, Message{RunID: id, Name: "signal", ID: id.String(), Payload: []byte("x")})
		windows = append(windows, &openWindow{
			id: id, policy: Batch, windowState: windowState{run: id}, opened: id,
		})
		changes = append(changes, &waitingChange{run: id, window: id})
		leases, steps, attempts = append(leases, lease.String()), append(steps, "step"), append(attempts, 1)
	}
	var ends []*Finish
	var topicEnds []topicEnd
	var consumers []string
	for i, id := range ids {
		e := finish(&ClaimedRun{RunID: id, Lease: lease})
		name := fmt.Sprintf("consumer-%d", i)
		e.Consumed = &Consumed{
			Consumer: name, Named: []string{"topic"},
			Topics: []ConsumedTopic{{Topic: "topic", Looked: 1, Ranges: [][2]int64{{0, 1}}}},
		}
		ends, consumers = append(ends, e), append(consumers, name)
		topicEnds = append(topicEnds, topicEnd{e, &e.Consumed.Topics[0]})
	}
	consuming := map[string][]string{
		"consumers_pkey": {"consumer", "namespace_id"}, "consumers_key": {"run_key", "namespace_id"},
		"subscriptions_pkey":     {"topic", "consumer", "namespace_id"},
		"subscriptions_consumer": {"consumer", "namespace_id"}, "run_keys_pkey": {
			"key_scope", "run_key",
			"namespace_id",
		}, runsKey: {"run_id", "namespace_id"},
	}
	eventsByID := map[string][]string{}
	for i := range clause.EventParts {
		consuming[fmt.Sprintf("events_%d_topic_namespace_id_position_idx", i)] = []string{
			"topic", "namespace_id",
			"position",
		}
		eventsByID[fmt.Sprintf("events_%d_pkey", i)] = []string{"event_id", "namespace_id"}
	}
	runs := array(ids)
	req := request(len(ids), types(WorkflowVersions{"type", []int{1}, 1}, WorkflowVersions{"other", []int{1, 2}, 2},
		WorkflowVersions{"third", []int{1}, 1}))
	typeNames, priorities, versions, _ := req.pairs()
	both := map[string][]string{claimIndex: claimed, runsKey: byKey[runsKey]}
	pauses := map[string][]string{
		pausesKey: {"task_queue", "namespace_id"}, keysKey: {"key_scope", "run_key", "namespace_id"},
	}
	schedules := map[string][]string{
		firedIndex: {"schedule_id", "namespace_id"}, queuedIndex: {"schedule_id", "namespace_id"},
		runsKey: {"run_id", "namespace_id"},
	}
	bySchedule := map[string][]string{scheduleKey: {"schedule_id", "namespace_id"}}
	byEvent := map[string][]string{"event_parts_pkey": nil, "subscriptions_pkey": {"topic", "namespace_id"}}
	for i := range clause.EventParts {
		byEvent[fmt.Sprintf("events_%d_pkey", i)] = []string{"event_id", "namespace_id"}
	}
	ofLimit := []string{"limit_name", "namespace_id"}
	placed := plans.Both(byKey, map[string][]string{
		"limits_pkey": ofLimit, "limit_places_state": ofLimit, "limit_places_pkey": {"run_id", "namespace_id"},
	})
	asked := plans.Both(byKey, map[string][]string{"limit_places_pkey": {"run_id", "namespace_id"}})
	byExternal := map[string][]string{
		externalID: {"external_id", "namespace_id"},
		endedID:    {"external_id", "namespace_id"},
	}
	limited := map[string][]string{
		claimIndex: claimed, runsKey: byKey[runsKey],
		queuesKey: {"task_queue", "namespace_id"}, slotsIndex: {"task_queue", "namespace_id"},
	}
	scoped := []string{"key_scope", "namespace_id"}
	keyed := map[string][]string{
		runsKey: byKey[runsKey], keyedIndex: {"key_scope", "namespace_id", "run_key"},
		slotsIndex: {"task_queue", "namespace_id"}, "workflow_runs_group_slot": {"run_key", "namespace_id"},
		keysKey: {"key_scope", "run_key", "namespace_id"}, queuesKey: {"task_queue", "namespace_id"},
	}
	line := map[string][]string{
		keysKey: {"key_scope", "run_key", "namespace_id"}, "run_keys_line": scoped,
		"key_changes_pkey": scoped, queuesKey: {"task_queue", "namespace_id"},
	}
	queues, names := make([]string, len(ids)), make([]string, len(ids))
	locked := &lockedKeys{scopes: queues, names: names, versions: make([]int64, len(ids))}
	for i := range ids {
		queues[i], names[i] = "queue", fmt.Sprint("key-", i)
	}
	states := plans.Both(keyed, map[string][]string{
		claimIndex: claimed[:3], slotsIndex: {"task_queue", "namespace_id"}, "run_keys_line": {"namespace_id"},
		keysKey: {"namespace_id"}, queuesKey: {"namespace_id"},
	})
	maps.Copy(states, map[string][]string{keysKey: {"namespace_id"}, queuesKey: {"namespace_id"}})
	return append(append(continuationPlans(s, ids), eventWaitPlans(s, ids)...), []plans.Statement{
		plans.Of(
			"dueRuns", dueRuns,
			[]any{s.namespace, "queue", typeNames, priorities, versions, 10, runs, queues, names},
			plans.Both(keyed, both),
		),
		plans.Of(
			"claimRuns", claimRuns, s.Claims.claimArgs(req),
			plans.Both(plans.Both(both, pauses), map[string][]string{queuesKey: {"task_queue", "namespace_id"}}),
		),
		plans.Of("claimLimited", claimLimited, s.Claims.claimArgs(req), plans.Both(limited, pauses)),
		plans.Of("claimKeys", claimKeys, s.Claims.keyedArgs(req, locked), plans.Both(keyed, pauses)),
		plans.Of("tryRuns", tryRuns, s.Claims.tryArgs(req, ids), byKey),
		plans.Of("tryKeyedRuns", tryKeyedRuns, s.Claims.tryArgs(req, ids), byKey),
		plans.Of("setBackRuns", setBackRuns, s.Claims.tryArgs(req, ids), byKey),
		plans.Of(
			"nextDue", nextDue, []any{s.namespace, "queue", typeNames, priorities, int64(1e6), int64(0)},
			plans.Both(plans.Both(both, pauses), map[string][]string{queuesKey: {"task_queue", "namespace_id"}}),
		),
		plans.Of("fullKeys", fullKeys, []any{s.namespace, queues, names, runs}, keyed),
		plans.Of(
			"oldestOfKeys", oldestOfKeys,
			[]any{s.namespace, queues, names, runs, make([]int32, len(ids)), mostCancelled},
			keyed,
		),
		plans.Of("lockKeys", lockKeys, []any{
			s.namespace, "queue", 100, queues, names, int64(0), int64(0), 500, make([]bool, len(names)),
		}, line),
		plans.Of("lockQueue", lockQueue, []any{s.namespace, "queue"}, keyed),
		plans.Of("nextKeys", nextKeys, []any{s.namespace, "queue", int64(0), int64(0)}, line),
		plans.Of("pauseOfKey", pauseOfKey, []any{s.namespace, "queue", "key"}, plans.Both(map[string][]string{
			"run_keys_paused": {"key_scope", "run_key", "namespace_id"},
		}, keyed)),
		plans.Of("unpauseKey", unpauseKey, []any{s.namespace, "queue", "key"}, keyed),
		plans.Of("insertKeyRows", insertKeyRows, []any{s.namespace, "queue", names}, keyed),
		plans.Of("refuseSecondRows", refuseSecondRows, []any{s.namespace, queues, names}, keyed),
		plans.Of("capQueueRate", capQueueRate, []any{s.namespace, "queue", int64(5)}, keyed),
		plans.Of("unsettled", unsettled, []any{s.namespace, "queue"}, keyed),
		plans.Of("capKeyRate", capKeyRate, []any{s.namespace, "queue", "key", int64(5)}, keyed),
		plans.Of(
			"giveSlots", giveSlots,
			[]any{s.namespace, "queue", typeNames[:3], settledRuns},
			plans.Both(map[string][]string{"workers_live": nil}, limited),
		),
		plans.Of("capKeyRates", capKeyRates, []any{s.namespace, "queue", "", settledKeys}, states),
		plans.Of(
			"keysToRecheck", keysToRecheck,
			[]any{s.namespace, "queue", "", settledKeys},
			plans.Both(map[string][]string{"consumers_key": {"run_key", "namespace_id"}}, keyed),
		),
		plans.Of("unsettledQueues", unsettledQueues, []any{s.namespace, int64(5)}, states),
		plans.Of("markSettled", markSettled, []any{s.namespace, "queue", int64(5)}, keyed),
		plans.Of("deleteQueue", deleteQueue, []any{s.namespace, "queue"}, keyed),
		plans.Of("pruneKeys", pruneKeys, []any{s.namespace, "", "", 1000}, states),
		plans.Of("missedRuns", missedRuns, s.Claims.missedArgs(req), plans.Both(both, pauses)),
		plans.Of("runsOfClaim", runsOfClaim, []any{
			s.namespace, "queue", typeNames, priorities, array(leasesOf(lease)),
			pg.Micros(time.Minute),
		}, both),
		plans.Of("insertResults", insertResults, resultColumns.args(s.namespace, records), byKey),
		plans.Of("recordSteps", recordSteps, recordColumns.args(s.namespace, records), byKey),
		plans.Of(
			"publishRecorded", publishRecorded, recordedEventColumns.args(s.namespace, recordedEvents(publishings)),
			plans.Both(byKey, byEvent),
		),
		plans.Of("publishRuns", publishRuns, s.runEvents(ended, ids, make([]uuid.UUID, len(ids))),
			plans.Both(byKey, byEvent)),
		plans.Of("recordCompensations", recordCompensations, compensationColumns.args(s.namespace, registered), byKey),
		plans.Of(
			"compensatingRun", compensatingRun,
			[]any{s.namespace, ids[0]},
			plans.Both(byKey, map[string][]string{parentIndex: {"parent_run_id", "namespace_id"}}),
		),
		plans.Of("compensationsOf", compensationsOf, []any{s.namespace, ids[0]}, plans.Both(byKey, byStep)),
		plans.Of("compensationEnded", compensationEnded, []any{s.namespace, ids[0], "step", 1, Completed, "", ""},
			byAttempt),
		plans.Of("compensationStarted", compensationStarted, []any{s.namespace, ids[0], "step", 1, uuid.New()},
			byAttempt),
		plans.Of("compensationRefused", compensationRefused, []any{
			s.namespace, ids[0], pg.Micros(refusedPause), `[{"kind": "children"}]`, "step", 1,
			"why",
		}, plans.Both(byKey, byAttempt)),
		plans.Of("compensationAwaited", compensationAwaited, []any{s.namespace, ids[0], 1, `[{"kind": "children"}]`},
			byKey),
		plans.Of(
			"dueCompensations", dueCompensations,
			[]any{s.namespace, 100},
			map[string][]string{"workflow_runs_compensating": {"available_at", "namespace_id"}},
		),
		plans.Of("lockRuns", lockRuns, []any{s.namespace, runs}, byKey),
		plans.Of("lockFreeRuns", lockFreeRuns, []any{s.namespace, runs}, byKey),
		plans.Of("suspendRuns", suspendRuns, suspendColumns.args(s.namespace, suspensions), byKey),
		plans.Of("logAttempts", logAttempts, attemptColumns.args(s.namespace, suspensions),
			plans.Both(byKey, map[string][]string{"run_events_pkey": {"run_id", "namespace_id"}})),
		plans.Of(
			"forgetFailures", forgetFailures, forgetColumns.args(s.namespace, (&Flush{Finishes: failures}).forgotten()),
			plans.Both(byKey, map[string][]string{stepsKey: {"run_id", "step_id", "namespace_id"}}),
		),
		plans.Of("completeRuns", completeRuns, completeColumns.args(s.namespace, finishes), byKey),
		plans.Of("finishRuns", finishRuns, finishColumns.args(s.namespace, finishes), plans.Both(byKey, byStep)),
		plans.Of("extendLeases", extendLeases, []any{s.namespace, runs, leases, pg.Micros(time.Minute)}, byKey),
		plans.Of(
			"heldStates", heldStates,
			[]any{s.namespace, runs, leases},
			plans.Both(byKey, pauses),
		),
		plans.Of("history", history, []any{s.namespace, runs, 1000}, byStep),
		plans.Of("runInputs", runInputs, []any{s.namespace, runs, 1000}, byInput),
		plans.Of("loadSize", loadSize, []any{s.namespace, ids[0]}, map[string][]string{
			itemsKey: {"run_id", "namespace_id"},
			stepsKey: {"run_id", "namespace_id"}, signalsKey: {"run_id", "namespace_id"},
			runsKey: {"run_id", "namespace_id"},
		}),
		plans.Of("crashLoopEvidence", crashLoopEvidence, []any{s.namespace, ids[0], time.Now()}, byStep),
		plans.Of("stepAttempts", stepAttempts, []any{s.namespace, ids[0], false, []string{"a"}, "\x02", ""},
			plans.Both(byKey, byStep)),
		plans.Of("resolveRuns", resolveRuns, []any{s.namespace, runs}, byKey),
		plans.Of("resolveSteps", resolveSteps, []any{s.namespace, runs, steps, attempts}, byAttempt),
		plans.Of("runsOfWorker", runsOfWorker, []any{
			s.namespace, uuid.New(),
			[]string{"queue"},
			typeNames[:3],
			pg.Micros(time.Minute), uuid.Nil, releaseBatch,
		}, both),
		plans.Of("releaseRuns", releaseRuns, []any{s.namespace, uuid.New(), runs}, byKey),
		plans.Of("endedRuns", endedRuns, []any{s.namespace, runs}, byKey),
		plans.Of("missingRuns", missingRuns, []any{s.namespace, runs}, byKey),
		plans.Of("existingRuns", existingRuns, []any{s.namespace, runs}, byKey),
		plans.Of("activeByExternalID", activeByExternalID, []any{s.namespace, runs}, byExternal),
		plans.Of("endedByExternalID", endedByExternalID, []any{s.namespace, runs}, byExternal),
		plans.Of("findActive", findActive, []any{s.namespace, "id"}, byExternal),
		plans.Of("findEnded", findEnded, []any{s.namespace, "id"}, byExternal),
		plans.Of(
			"getRun", getRun,
			[]any{s.namespace, ids[0]},
			plans.Both(byInput, map[string][]string{"workers_pkey": {"worker_id", "namespace_id"}}),
		),
		plans.Of("lockForChange", lockForChange, []any{s.namespace, ids[0]}, byKey),
		plans.Of(
			"descendants", descendants,
			[]any{s.namespace, runs, false},
			map[string][]string{parentIndex: {"parent_run_id", "namespace_id"}},
		),
		plans.Of("lockFamily", lockFamily, []any{s.namespace, runs, runs}, byKey),
		plans.Of("endRuns", endRuns, []any{
			s.namespace, runs, steps, steps, steps, make([]bool, len(ids)), true,
			pg.Micros(time.Minute), false,
		}, plans.Both(byKey, byStep)),
		plans.Of(
			"overdueRuns", overdueRuns,
			[]any{s.namespace, "-infinity", uuid.Nil, pg.Micros(time.Second), 500},
			map[string][]string{deadlineIndex: {"namespace_id", "deadline_at"}},
		),
		plans.Of(
			"unbegunRuns", unbegunRuns,
			[]any{s.namespace, "-infinity", uuid.Nil, 500},
			map[string][]string{"workflow_runs_start_by": {"namespace_id", "start_by"}},
		),
		plans.Of(
			"activeChildren", activeChildren,
			[]any{s.namespace, ids[0]},
			map[string][]string{parentIndex: {"parent_run_id", "namespace_id"}},
		),
		plans.Of("checkPremises", checkPremises, checkColumns.args(s.namespace,
			[]check{{run: ids[0], kind: recordThere, name: "step", number: 1}}), byPremise),
		plans.Of("findMissing", findMissing, checkColumns.args(s.namespace,
			[]check{{run: ids[0], kind: recordThere, name: "step", number: 1}}), byPremise),
		plans.Of("stillHeld", stillHeld, []any{s.namespace, ids[0], lease}, byKey),
		plans.Of("insertChildren", insertChildren, childColumns.args(s.namespace, children(started)), byKey),
		plans.Of(
			"changeMetadata", changeMetadata,
			metadataColumns.args(s.namespace, []*metadataChange{{run: ids[0], lease: uuid.New()}}),
			map[string][]string{runsKey: {"run_id", "namespace_id"}},
		),
		plans.Of("dueAmong", dueAmong, []any{s.namespace, ids[:2]}, byKey),
		plans.Of(
			"setProgress", setProgress,
			progressColumns.args(s.namespace, []*Progress{{RunID: ids[0], Lease: lease, Text: "text"}}), byKey,
		),
		plans.Of(
			"recordedMetadata", recordedMetadata,
			[]any{s.namespace, ids[0]},
			map[string][]string{stepsKey: {"run_id", "namespace_id"}},
		),
		plans.Of(
			"setMetadata", setMetadata,
			[]any{s.namespace, uuid.New(), "{}"},
			map[string][]string{runsKey: {"run_id", "namespace_id"}},
		),
		plans.Of(
			"consumeSignals", consumeSignals, consumeColumns.args(s.namespace, records),
			map[string][]string{
				signalsKey: {"run_id", "name", "sequence", "namespace_id"},
				stepsKey:   {"run_id", "step_id", "attempt_number", "namespace_id"},
			},
		),
		plans.Of(
			"storeMessages", storeMessages, messageColumns.args(s.namespace, messages, true, MostUnread),
			map[string][]string{
				runsKey: {"run_id", "namespace_id"}, signalsKey: {"run_id", "namespace_id"},
				"signals_signal_id": {"signal_id", "run_id", "namespace_id"},
			},
		),
		plans.Of(
			"resolveMessages", resolveMessages,
			[]any{s.namespace, runs, runs, MostUnread, [][]byte{}},
			map[string][]string{
				runsKey: {"run_id", "namespace_id"}, signalsKey: {"run_id", "namespace_id"},
				"signals_signal_id": {"signal_id", "run_id", "namespace_id"},
			},
		),
		plans.Of(
			"answers", answers,
			[]any{s.namespace, runs, []string{"id"}},
			map[string][]string{
				runsKey: {"run_id", "namespace_id"}, "step_runs_replies": {"run_id", "sequence", "namespace_id"},
				"signals_signal_id": {"signal_id", "run_id", "namespace_id"},
			},
		),
		plans.Of("findCheckpoint", findCheckpoint, []any{s.namespace, ids[0], "#checkpoint:step"}, byAttempt),
		plans.Of(
			"findValues", findValues,
			[]any{s.namespace, runs, []string{"#value:state"}, []int64{0}},
			map[string][]string{
				runsKey: {"run_id", "namespace_id"}, "step_runs_values": {"run_id", "namespace_id"},
			},
		),
		plans.Of(
			"expireRequests", expireRequests,
			[]any{s.namespace, runs, []string{"id"}},
			map[string][]string{
				runsKey: {"run_id", "namespace_id"}, signalsKey: {"run_id", "name", "sequence", "namespace_id"},
				"signals_signal_id": {"signal_id", "run_id", "namespace_id"},
			},
		),
		plans.Of(
			"repliesTo", repliesTo,
			[]any{s.namespace, runs, []string{"#name"}, []int64{1}},
			map[string][]string{signalsKey: {"run_id", "name", "sequence", "namespace_id"}},
		),
		plans.Of(
			"askedRun", askedRun,
			[]any{s.namespace, "id", "id"},
			map[string][]string{
				runsKey: {"run_id", "namespace_id"}, "signals_signal_id": {"signal_id", "namespace_id"},
			},
		),
		plans.Of(
			"noteFullInbox", noteFullInbox,
			[]any{s.namespace, ids[0]},
			map[string][]string{runsKey: {"run_id", "namespace_id"}},
		),
		plans.Of(
			"messageRuns", messageRuns,
			[]any{s.namespace, runs},
			map[string][]string{"signals_signal_id": {"signal_id", "namespace_id"}},
		),
		plans.Of(
			"startedWith", startedWith,
			[]any{s.namespace, runs, []string{"id"}, []string{"id"}},
			map[string][]string{
				runsKey: {"run_id", "namespace_id"}, "signals_signal_id": {"signal_id", "namespace_id"},
			},
		),
		plans.Of(
			"unreadSignals", unreadSignals,
			[]any{s.namespace, runs, 1000},
			map[string][]string{signalsKey: {"run_id", "namespace_id"}},
		),
		plans.Of(
			"unreadOfName", unreadOfName,
			[]any{s.namespace, ids[0], "signal", int64(0), 1000},
			map[string][]string{signalsKey: {"run_id", "namespace_id", "name", "sequence"}},
		),
		plans.Of(
			"setAsideMessages", setAsideMessages,
			setAsideColumns.args(s.namespace, []*SetAside{{RunID: ids[0], Lease: lease, Name: "signal", Sequence: 1}}),
			map[string][]string{runsKey: {"run_id", "namespace_id"}, signalsKey: {
				"run_id", "name", "sequence",
				"namespace_id",
			}},
		),
		plans.Of(
			"removeMessage", removeMessage,
			[]any{s.namespace, ids[0], "id", true},
			map[string][]string{"signals_signal_id": {"signal_id", "run_id", "namespace_id"}},
		),
		plans.Of("doubtOf", doubtOf, []any{s.namespace, ids[0], "step"},
			plans.Both(byKey, plans.Both(byStep, byDoubt))),
		plans.Of("recordResolution", recordResolution,
			(&Answer{State: AnswerReplied}).recorded(s.namespace, openDoubt{run: ids[0], step: "step"}), byStep),
		plans.Of("takeResolution", takeResolution, []any{s.namespace, ids[0], "id"}, map[string][]string{
			"signals_signal_id": {"signal_id", "run_id", "namespace_id"},
		}),
		plans.Of(
			"messageReadBy", messageReadBy,
			[]any{s.namespace, ids[0], "id"},
			map[string][]string{"signals_signal_id": {"signal_id", "run_id", "namespace_id"}},
		),
		plans.Of("endedChildren", endedChildren, []any{s.namespace, runs, 1000}, plans.Both(byKey, byStep)),
		plans.Of("runWakeups", runWakeups, []any{s.namespace, runs}, byKey),
		plans.Of("lockWaiter", lockWaiter, []any{s.namespace, ids[0]}, byKey),
		plans.Of(
			"takenPlaces", takenPlaces,
			[]any{s.namespace, "queue", 5},
			map[string][]string{slotsIndex: {"task_queue", "namespace_id"}},
		),
		plans.Of("updateRun", updateRun, []any{
			s.namespace, ids[0], "other", 1, true, 2, true, "{}", true, int64(0),
			int64(0),
		}, byKey),
		plans.Of(
			"childrenOf", childrenOf,
			[]any{s.namespace, runs, runs, 100},
			map[string][]string{parentIndex: {"parent_run_id", "namespace_id", "run_id"}},
		),
		plans.Of(
			"childBeyond", childBeyond,
			[]any{s.namespace, runs},
			map[string][]string{parentIndex: {"parent_run_id", "namespace_id"}},
		),
		plans.Of("statesBelow", statesBelow, []any{s.namespace, runs, ids[0]}, byKey),
		plans.Of("rowsOfRuns", rowsOfRuns, []any{s.namespace, runs, 1000}, gone),
		plans.Of("markDeleted", markDeleted, []any{s.namespace, runs}, byKey),
		plans.Of("deleteRuns", deleteRuns, []any{s.namespace, runs}, gone),
		plans.Of("recordedDeletions", recordedDeletions, []any{s.namespace, runs}, gone),
		plans.Of(
			"findDeleted", findDeleted,
			[]any{s.namespace, "id"},
			map[string][]string{"run_events_deleted_id": {"external_id", "namespace_id"}},
		),
		plans.Of(
			"pruneDeletions", pruneDeletions,
			[]any{s.namespace, pg.Micros(time.Hour), 500},
			map[string][]string{
				"run_events_deleted": {"occurred_at", "namespace_id"},
				eventsKey:            {"run_id", "namespace_id"},
			},
		),
		plans.Of(
			"insertAudit", insertAudit,
			auditColumns.args(s.namespace, []AuditEntry{
				NewEntry(EventPaused, OnRun, ids[0].String(), Why{}),
				NewEntry(EventPaused, OnAll, "", Why{}),
			}), byKey,
		),
		plans.Of(
			"pruneAudit", pruneAudit,
			[]any{s.namespace, pg.Micros(time.Hour), 500},
			map[string][]string{
				"audit_log_time": {"occurred_at", "namespace_id"},
				"audit_log_pkey": {"entry_id", "namespace_id"},
			},
		),
		plans.Of("pauseRun", pauseRun, []any{s.namespace, ids[0]}, byKey),
		plans.Of("stateForPause", stateForPause, []any{s.namespace, ids[0]}, byKey),
		plans.Of("unpauseRun", unpauseRun, []any{s.namespace, ids[0]}, plans.Both(byKey,
			map[string][]string{"workers_pkey": {"worker_id", "namespace_id"}, "workers_live": {"namespace_id"}})),
		plans.Of("waitingScopes", waitingScopes, []any{s.namespace}, map[string][]string{keyedIndex: {"namespace_id"}}),
		plans.Of(
			"insertRuns", insertRuns,
			insertColumns.args(s.namespace,
				[]*NewRun{{
					RunID: uuid.New(), Spec: Spec{Queue: "queue", Type: "type", Priority: 3},
					Claim: &NewClaim{LeaseTimeout: time.Minute},
				}}),
			plans.Both(pauses, map[string][]string{queuesKey: {"namespace_id"}}),
		),
		plans.Of(
			"insertRunsWithoutKeys", insertRunsWithoutKeys,
			insertColumns.args(s.namespace,
				[]*NewRun{{
					RunID: uuid.New(), Spec: Spec{Queue: "queue", Type: "type", Priority: 3},
					Claim: &NewClaim{LeaseTimeout: time.Minute},
				}}),
			plans.Both(pauses, map[string][]string{queuesKey: {"namespace_id"}}),
		),
		plans.Of("insertPendingWithoutKeys", insertPendingWithoutKeys, insertColumns.args(s.namespace,
			[]*NewRun{{RunID: uuid.New(), Spec: Spec{Queue: "queue", Type: "type", Priority: 3}}}), nil),
		plans.Of("logLastAttempt", logLastAttempt, []any{s.namespace, ids[0], uuid.New(), mostOfError},
			plans.Both(byKey, map[string][]string{"run_events_pkey": {"run_id", "namespace_id"}})),
		plans.Of("resumeRun", resumeRun, []any{s.namespace, ids[0]}, byKey),
		plans.Of("failuresWith", failuresWith, []any{s.namespace, ids[0], []string{"step"}}, byStep),
		plans.Of(
			"forgetNamed", forgetNamed,
			[]any{s.namespace, ids[0], []string{"step"}, []string{"step", "group"}},
			plans.Both(byKey, byStep),
		),
		plans.Of("compensated", compensated, []any{s.namespace, ids[0]}, byKey),
		plans.Of("retryCompensations", retryCompensations, []any{s.namespace, ids[0]}, plans.Both(byKey, byStep)),
		plans.Of(
			"slotOfRun", slotOfRun,
			[]any{s.namespace, ids[0]},
			plans.Both(byKey, map[string][]string{queuesKey: {"task_queue", "namespace_id"}}),
		),
		plans.Of(
			"lockKeyRows", lockKeyRows,
			[]any{s.namespace, "queue", []string{"key-1"}},
			map[string][]string{"run_keys_pkey": {"key_scope", "run_key", "namespace_id"}},
		),
		plans.Of(
			"lowerSlots", lowerSlots,
			[]any{s.namespace, "queue", "key-1", ids[0]},
			map[string][]string{"run_keys_pkey": {"key_scope", "run_key", "namespace_id"}},
		),
		plans.Of(
			"takenOfKey", takenOfKey,
			[]any{s.namespace, "queue", "key-1"},
			map[string][]string{
				"run_keys_pkey": {"key_scope", "run_key", "namespace_id"},
				queuesKey:       {"task_queue", "namespace_id"}, slotsIndex: {"task_queue", "namespace_id"},
				"workflow_runs_group_slot": {"run_key", "namespace_id"},
			},
		),
		plans.Of(
			"holderOfGroup", holderOfGroup,
			[]any{s.namespace, "key-1"},
			map[string][]string{"workflow_runs_group_slot": {"run_key", "namespace_id"}},
		),
		plans.Of(
			"hasPlaces", hasPlaces,
			[]any{s.namespace, "queue"},
			map[string][]string{queuesKey: {"task_queue", "namespace_id"}},
		),
		plans.Of("resumeCompensating", resumeCompensating, []any{s.namespace, ids[0], true}, byKey),
		plans.Of("holdBesideParent", holdBesideParent, []any{s.namespace, ids[0], uuid.New()}, byKey),
		plans.Of(
			"otherActive", otherActive,
			[]any{s.namespace, ids[0]},
			map[string][]string{externalID: {"external_id", "namespace_id"}, runsKey: {"run_id", "namespace_id"}},
		),
		plans.Of(
			"lockConsumerOfRun", lockConsumerOfRun,
			[]any{s.namespace, ids[0]},
			map[string][]string{"consumers_pkey": {"consumer", "namespace_id"}, runsKey: {"run_id", "namespace_id"}},
		),
		plans.Of(
			"heldConsumers", heldConsumers,
			[]any{s.namespace, consumers},
			map[string][]string{"consumers_pkey": {"consumer", "namespace_id"}},
		),
		plans.Of(
			"templateActive", templateActive,
			[]any{s.namespace, ids[0], runs},
			map[string][]string{
				"workflow_runs_active_fired": {"schedule_id", "namespace_id"},
				"workflow_runs_group_slot":   {"run_key", "namespace_id"}, scheduleKey: {"schedule_id", "namespace_id"},
			},
		),
		plans.Of("startConsumers", startConsumers, []any{
			s.namespace, consumers, runs, int64(5),
			[]int64{1},
			[]int64{1},
			pg.Micros(unsettledPause),
			[]string{},
			false,
		}, consuming),
		plans.Of(
			"recheckConsumers", recheckConsumers,
			[]any{s.namespace, clause.MaxQueues},
			plans.Both(map[string][]string{"consumers_pkey": {"consumer", "namespace_id"}}, consuming),
		),
		plans.Of("commitConsumers", commitConsumers, commitColumns.args(s.namespace, ends), consuming),
		plans.Of("commitSubscriptions", commitSubscriptions, commitTopicColumns.args(s.namespace, topicEnds),
			consuming),
		plans.Of(
			"triggerConsumer", triggerConsumer,
			[]any{s.namespace, "consumer-1", true},
			plans.Both(map[string][]string{"workflow_runs_group_slot": {"run_key", "namespace_id"}}, consuming),
		),
		plans.Of("partHolder", partHolder, []any{int16(1)}, plans.Both(map[string][]string{
			"event_parts_pkey":   {"part"},
			"subscriptions_pkey": nil, "subscriptions_consumer": nil,
		}, consuming)),
		plans.Of(
			"skipEvent", skipEvent,
			[]any{s.namespace, "topic", "consumer-1", "id", int64(5)},
			plans.Both(eventsByID, consuming),
		),
		plans.Of("runStatus", runStatus, []any{s.namespace, ids[0]}, byKey),
		plans.Of("lockOver", lockOver, []any{s.namespace, ids[0]}, byKey),
		plans.Of("restartRun", restartRun, []any{
			s.namespace, ids[0], uuid.New(), "", 0, false,
			[]byte{},
			true,
			[]byte{},
			"",
		}, byInput),
		plans.Of("unhashedInput", unhashedInput, []any{s.namespace, ids[0]}, byInput),
		plans.Of("findForkPoint", findForkPoint, []any{s.namespace, ids[0], "step"}, byStep),
		plans.Of("forkedRun", forkedRun, []any{s.namespace, ids[0]}, byKey),
		plans.Of("copySteps", copySteps, []any{
			s.namespace, ids[0], uuid.New(), "step", time.Now(), 1, true,
			1, 0,
		}, byStep),
		plans.Of("runEvents", runEvents, []any{s.namespace, ids[0]}, gone),
		plans.Of("eventExists", eventExists, []any{s.namespace, ids[0], lease}, gone),
		plans.Of("copySignals", copySignals, []any{s.namespace, ids[0], uuid.New()}, gone),
		plans.Of("nextTemplate", nextTemplate, []any{s.namespace}, map[string][]string{dueIndex: {"next_at"}}),
		plans.Of("dueTemplates", dueTemplates, []any{s.namespace, 100},
			plans.Both(map[string][]string{dueIndex: {"next_at"}},
				schedules)),
		plans.Of("insertFired", insertFired, []any{
			s.namespace, runs, runs, versions64(ids), make([]bool, len(ids)),
			[]string{""},
		}, bySchedule),
		plans.Of("advanceTemplates", advanceTemplates, []any{
			s.namespace, runs, versions64(ids), versions64(ids), steps,
			make([]bool, len(ids)),
		}, bySchedule),
		plans.Of(
			"releaseQueued", releaseQueued,
			[]any{s.namespace, nil},
			plans.Both(map[string][]string{queuedIndex: nil}, schedules),
		),
		plans.Of(
			"releaseSomeQueued", releaseQueued,
			[]any{s.namespace, array(ids)},
			plans.Both(map[string][]string{queuedIndex: nil}, schedules),
		),
		plans.Of("queuedRuns", queuedRuns, []any{s.namespace}, plans.Both(map[string][]string{queuedIndex: nil},
			schedules)),
		plans.Of("blockingRuns", blockingRuns, []any{s.namespace}, plans.Both(map[string][]string{queuedIndex: nil},
			schedules)),
		plans.Of("activeFired", activeFired, []any{s.namespace, ids[0]}, schedules),
		plans.Of("lockTemplate", lockTemplate, []any{s.namespace, ids[0]}, bySchedule),
		plans.Of("getTemplate", getTemplate, []any{s.namespace, ids[0]}, plans.Both(bySchedule, schedules)),
		plans.Of(
			"listTemplates", listTemplates,
			[]any{s.namespace, "", 100, ""},
			plans.Both(map[string][]string{namesIndex: {"name", "namespace_id"}}, schedules),
		),
		plans.Of("firedRuns", firedRuns, []any{s.namespace, runs}, byKey),
		plans.Of(
			"storeTemplate", storeTemplate,
			savedTemplate.args(s.namespace, []*Template{{ID: ids[0], Timing: []byte("{}")}}),
			bySchedule,
		),
		plans.Of(
			"insertTemplate", insertTemplate,
			savedTemplate.args(s.namespace, []*Template{{ID: ids[0], Timing: []byte("{}")}}),
			bySchedule,
		),
		plans.Of("deleteTemplate", deleteTemplate, []any{s.namespace, ids[0]}, bySchedule),
		plans.Of(
			"expiredRuns", expiredRuns, append([]any{s.namespace, uuid.Nil, uuid.Max}, append(keep.args(), 2000)...),
			byKey,
		),
		plans.Of(
			"expiredOfAll", expiredOfAll, append([]any{uuid.Nil, uuid.Max}, append(keep.args(), 2000)...),
			map[string][]string{plans.RunsKey: {"run_id"}},
		),
		plans.Of("pruneRuns", pruneRuns, append([]any{s.namespace, runs}, append(keep.args(), 1000)...),
			plans.Both(gone, byDoubt)),
		plans.Of("pruneSteps", pruneSteps, []any{s.namespace, ids[0], 1000}, gone),
		plans.Of("lockWaiting", lockWaiting, []any{s.namespace, runs}, byWindow),
		plans.Of("windowStates", windowStates, []any{s.namespace, runs}, byWindow),
		plans.Of("updateWindows", updateWindows, updateColumns.args(s.namespace, windows), byWindow),
		plans.Of("changeWaiting", changeWaiting, changeColumns.args(s.namespace, changes), byWindow),
		plans.Of(
			"itemsOfStarts", itemsOfStarts,
			[]any{s.namespace, runs},
			map[string][]string{"start_items_item": {"item_id", "namespace_id"}},
		),
		plans.Of(
			"pruneWindows", pruneWindows,
			[]any{s.namespace, pg.Micros(time.Minute), 100},
			map[string][]string{
				"start_windows_closed": {"closes_at", "namespace_id"},
				windowsKey:             {"window_id", "namespace_id"},
			},
		),
		plans.Of("beginSuspect", beginSuspect, []any{s.namespace, ids[0], lease}, byKey),
		plans.Of("resetRecoveries", resetRecoveries, []any{s.namespace, ids[0], lease}, byKey),
		plans.Of(
			"activeTypes", clause.ActiveTypes,
			[]any{s.namespace, typeNames[:3], clause.MaxQueues},
			map[string][]string{claimIndex: claimed[:3]},
		),
		plans.Of(
			"busyQueues", busyQueues,
			[]any{s.namespace, pg.Micros(time.Minute)},
			plans.Both(map[string][]string{claimIndex: claimed, "workers_live": nil}, plans.Both(line, pauses)),
		),
		plans.Of(
			"leasesGiven", leasesGiven,
			[]any{
				s.namespace, uuid.New(), typeNames[:3], typeNames[:3], int64(0),
				pg.Micros(LateClaims), pg.Micros(time.Minute), 1000,
			},
			map[string][]string{claimIndex: claimed, deadlineIndex: {"namespace_id", "deadline_at"}},
		),
		plans.Of(
			"markedRuns", markedRuns,
			[]any{s.namespace, uuid.Nil, 100},
			map[string][]string{"workflow_runs_deleted": {"run_id", "namespace_id"}},
		),
		plans.Of("leaveLimit", leaveLimit, placeColumns.args(s.namespace, places, "limit"), placed),
		plans.Of("yieldLimit", yieldLimit, placeColumns.args(s.namespace, places, "limit"), placed),
		plans.Of("freeSlots", freeSlots, []any{s.namespace, "limit", pg.Micros(limitOver)}, placed),
		plans.Of(
			"headOfLimit", headOfLimit,
			[]any{s.namespace, "limit", pg.Micros(limitKept), 0, mostLooked, runs},
			plans.Both(plans.Both(pauses, map[string][]string{
				"workers_live": nil, "workers_pkey": {"namespace_id"}, "queues_pkey": {"task_queue", "namespace_id"},
				slotsIndex: {"task_queue", "namespace_id"}, "workflow_runs_group_slot": {"run_key", "namespace_id"},
			}), placed),
		),
		plans.Of("askedPlaces", askedPlaces, placeColumns.args(s.namespace, places, "limit"), asked),
		plans.Of("callRuns", callRuns, calledColumns.args(s.namespace, waiting, "api"), asked),
		plans.Of("dropPlaces", dropPlaces, []any{s.namespace, runs, "limit"}, asked),
		plans.Of("writePlaces", writePlaces, placeWrites.args(s.namespace, waiting, "limit"), asked),
		plans.Of("stalledLimits", stalledLimits, []any{s.namespace}, placed),
		plans.Of("usedLimit", usedLimit, []any{s.namespace, "limit"}, placed),
	}...)
}

func versions64(ids []uuid.UUID) []int64 { return make([]int64, len(ids)) }

// The statements of the hot paths use the indexes that were made for them, whatever statistics the planner has.
func TestPlansOfManyRows(t *testing.T) {
	t.Parallel()
	plans.Check(t, func(pool *pgxpool.Pool, ids []uuid.UUID) []plans.Statement {
		return plannedStatements(New(pool, "test"), ids)
	})
}

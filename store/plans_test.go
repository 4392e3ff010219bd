package store

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/kagzi/kagzi/internal/campaign"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// A plan is the result of EXPLAIN.
type plan struct {
	node
	text string
}

type node struct {
	Type      string  `json:"Node Type"`
	Relation  string  `json:"Relation Name"`
	Index     string  `json:"Index Name"`
	IndexCond string  `json:"Index Cond"`
	Rows      float64 `json:"Actual Rows"`
	Removed   float64 `json:"Rows Removed by Filter"`
	Hit       int     `json:"Shared Hit Blocks"`
	Read      int     `json:"Shared Read Blocks"`
	Plans     []node  `json:"Plans"`
}

// each calls f for the node and all nodes below it.
func (n *node) each(f func(*node)) {
	f(n)
	for i := range n.Plans {
		n.Plans[i].each(f)
	}
}

// reads reports whether the node, or one below it, reads the relation.
func (n *node) reads(relation string) (yes bool) {
	n.each(func(n *node) { yes = yes || n.Relation == relation })
	return yes
}

// buffers is how many pages were touched.
func (p *plan) buffers() int { return p.Hit + p.Read }

// maxRows is how many rows one scan of the relation read at most.
func (p *plan) maxRows(relation string) (rows float64) {
	p.each(func(n *node) {
		if n.Relation == relation && strings.HasSuffix(n.Type, "Scan") {
			rows = max(rows, n.Rows+n.Removed)
		}
	})
	return rows
}

// explain returns the plan of sql for args.
func explain(t *testing.T, db pg.DB, how, sql string, args ...any) *plan {
	t.Helper()
	text := one[string](t, db, how+" "+sql, args...)
	var out []struct{ Plan node }
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	p := &plan{node: out[0].Plan}
	p.text = p.outline("    ")
	return p
}

// outline returns the plan in the form that people read.
func (n *node) outline(indent string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s%s %s %s %s\n", indent, n.Type, n.Relation, n.Index, n.IndexCond)
	for i := range n.Plans {
		b.WriteString(n.Plans[i].outline(indent + "  "))
	}
	return b.String()
}

const (
	claimIndex  = "workflow_runs_claim"
	runsKey     = "workflow_runs_pkey"
	stepsKey    = "step_runs_pkey"
	signalsKey  = "signals_pkey"
	eventsKey   = "run_events_pkey"
	externalID  = "workflow_runs_active_external_id"
	endedID     = "workflow_runs_ended_external_id"
	dueIndex    = "schedules_due"
	namesIndex  = "schedules_name"
	scheduleKey = "schedules_pkey"
	firedIndex  = "workflow_runs_active_fired"
	queuedIndex = "workflow_runs_queued"
	parentIndex = "workflow_runs_parent"
	keyedIndex  = "workflow_runs_keyed"
	slotsIndex  = "workflow_runs_slots"
	keysKey     = "run_keys_pkey"
	queuesKey   = "queues_pkey"
	windowsKey  = "start_windows_pkey"
	itemsKey    = "start_items_pkey"
	pausesKey   = "pauses_pkey"

	deadlineIndex = "workflow_runs_deadline"
)

// A planned is a statement whose plan is checked, with the indexes that it may use and the columns that the search of
// each must have conditions on.
type planned struct {
	name    string
	sql     string
	args    []any
	indexes map[string][]string
}

// wrong returns the parts of the plan that differ from want.
func (p *plan) wrong(want planned) (wrong []string) {
	p.each(func(n *node) {
		columns, ok := want.indexes[n.Index]
		switch {
		case n.Type == "ModifyTable", n.Type == "Bitmap Heap Scan", n.Type == "Tid Scan":
			// of the former two, the child node counts; the last reads a row by its place
		case n.Index != "" && !ok, n.Index == "" && (n.Relation == "workflow_runs" || n.Relation == "step_runs" ||
			n.Relation == "schedules" || n.Relation == "run_keys" || n.Relation == "queues" ||
			n.Relation == "start_windows" || n.Relation == "start_items" || n.Relation == "pauses" ||
			n.Relation == "consumers" || n.Relation == "subscriptions"):
			wrong = append(wrong, fmt.Sprintf("%s of %s by %q", n.Type, n.Relation, n.Index))
		case n.Index != "":
			for _, c := range columns {
				if !strings.Contains(n.IndexCond, c) {
					wrong = append(wrong, fmt.Sprintf("%s by %s with condition %s, without %s", n.Type, n.Index,
						n.IndexCond, c))
				}
			}
		case n.Type == "Sort" && n.reads("workflow_runs") && (strings.HasPrefix(want.name, "claimRuns") ||
			strings.HasPrefix(want.name, "claimLimited") || want.name == "missedRuns"):
			wrong = append(wrong, "the claim sorts")
		}
	})
	return wrong
}

// plannedStatements returns the statements to check, with the runs ids as arguments.
func plannedStatements(s *Store, ids []uuid.UUID) []planned {
	claimed := []string{"task_queue", "namespace_id", "workflow_type", "priority", "available_at"}
	byKey := map[string][]string{runsKey: {"run_id", "namespace_id"}}
	byPremise := map[string][]string{
		runsKey: {"run_id", "namespace_id"}, stepsKey: {"run_id", "step_id", "attempt_number", "namespace_id"},
		signalsKey: {"run_id", "name", "sequence", "namespace_id"},
	}
	byStep := map[string][]string{stepsKey: {"run_id", "namespace_id"}}
	byInput := map[string][]string{runsKey: {"run_id", "namespace_id"}, itemsKey: {"run_id", "namespace_id"}}
	byWindow := map[string][]string{runsKey: {"run_id", "namespace_id"}, windowsKey: {"window_id", "namespace_id"}}
	byAttempt := map[string][]string{stepsKey: {"run_id", "step_id", "attempt_number", "namespace_id"}}
	gone := map[string][]string{
		"limit_places_pkey": {"run_id", "namespace_id"}, runsKey: {"run_id", "namespace_id"},
		stepsKey: {"run_id", "namespace_id"}, signalsKey: {"run_id", "namespace_id"},
		eventsKey: {"run_id", "namespace_id"}, itemsKey: {"run_id", "namespace_id"},
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
	var windows []*openWindow
	var changes []*waitingChange
	for _, id := range ids {
		places = append(places, Place{RunID: id, Lease: lease, StepID: "step"})
		r := &ClaimedRun{RunID: id, Lease: lease, ParentRunID: id}
		records, suspensions, finishes = append(records, record(r, "step", "x")),
			append(suspensions, sleep(r, time.Hour)), append(finishes, finish(r))
		failures = append(failures, &Finish{
			RunID: id, Lease: lease, Status: Failed,
			Forget: []string{"step", "step/0"},
		})
		started = append(started, &Record{
			StepRow: StepRow{RunID: id, StepID: "child", ChildRunID: uuid.New()},
			Lease:   lease, Start: &NewRun{Queue: "queue", Type: "type", Priority: 3},
		})
		registered = append(registered, registering(r, "step", 1))
		publishings = append(publishings, publishing(r, "step", 1, &NewEvent{Topic: "topic", ID: id.String()}))
		messages = append(messages, Message{RunID: id, Name: "signal", ID: id.String(), Payload: []byte("x")})
		windows, changes = append(windows, &openWindow{id: id, policy: Batch, run: id, opened: id}),
			append(changes, &waitingChange{run: id, window: id})
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
		}, pausesKey: {"run_key", "namespace_id"}, runsKey: {"run_id", "namespace_id"},
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
	pauses := map[string][]string{pausesKey: {"run_key", "namespace_id"}}
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
	placed := withKey(byKey, map[string][]string{
		"limits_pkey": ofLimit, "limit_places_held": ofLimit, "limit_places_line": ofLimit,
		"limit_places_timed": ofLimit, "limit_places_pkey": {"run_id", "namespace_id"},
	})
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
	for i := range ids {
		queues[i], names[i] = "queue", fmt.Sprint("key-", i)
	}
	states := withKey(keyed, map[string][]string{
		claimIndex: claimed[:3], slotsIndex: {"task_queue", "namespace_id"}, "run_keys_line": {"namespace_id"},
		keysKey: {"namespace_id"}, queuesKey: {"namespace_id"},
	})
	maps.Copy(states, map[string][]string{keysKey: {"namespace_id"}, queuesKey: {"namespace_id"}})
	return []planned{
		{
			"claimRunsUnpaused", claimsUnpaused.runs, s.Claims.claimArgs(req),
			withKey(withKey(both, pauses), map[string][]string{queuesKey: {"task_queue", "namespace_id"}}),
		},
		{"claimLimitedUnpaused", claimsUnpaused.limited, s.Claims.claimArgs(req), withKey(limited, pauses)},
		{"claimKeysUnpaused", claimsUnpaused.keys, s.Claims.keyedArgs(req, queues, names), withKey(keyed, pauses)},
		{
			"claimRunsWithout", claimsWithout.runs, append(s.Claims.claimArgs(req), runs),
			withKey(withKey(both, pauses), map[string][]string{queuesKey: {"task_queue", "namespace_id"}}),
		},
		{"claimLimitedWithout", claimsWithout.limited, append(s.Claims.claimArgs(req), runs), withKey(limited, pauses)},
		{
			"claimKeysWithout", claimsWithout.keys, append(s.Claims.keyedArgs(req, queues, names), runs),
			withKey(keyed, pauses),
		},
		{
			"onlyRuns", claimsOnly.runs, append(s.Claims.claimArgs(req), runs),
			withKey(withKey(both, pauses), map[string][]string{queuesKey: {"task_queue", "namespace_id"}}),
		},
		{"onlyRunsLimited", claimsOnly.limited, append(s.Claims.claimArgs(req), runs), withKey(limited, pauses)},
		{
			"onlyRunsOfKeys", claimsOnly.keys, append(s.Claims.keyedArgs(req, queues, names), runs),
			withKey(keyed, pauses),
		},
		{
			"dueRuns", dueRuns,
			[]any{s.namespace, "queue", typeNames, priorities, versions, 10, runs, queues, names},
			withKey(keyed, both),
		},
		{
			"claimRuns", claimsWithPauses.runs, s.Claims.claimArgs(req),
			withKey(withKey(both, pauses), map[string][]string{queuesKey: {"task_queue", "namespace_id"}}),
		},
		{"claimLimited", claimsWithPauses.limited, s.Claims.claimArgs(req), withKey(limited, pauses)},
		{"claimKeys", claimsWithPauses.keys, s.Claims.keyedArgs(req, queues, names), withKey(keyed, pauses)},
		{"fullKeys", fullKeys, []any{s.namespace, queues, names, runs}, keyed},
		{
			"oldestOfKeys", oldestOfKeys,
			[]any{s.namespace, queues, names, runs, make([]int32, len(ids)), mostCancelled},
			keyed,
		},
		{"lockKeys", lockKeys, []any{s.namespace, "queue", 100, queues, names, int64(0), int64(0), 500}, line},
		{"lockQueue", lockQueue, []any{s.namespace, "queue"}, keyed},
		{"nextKeys", nextKeys, []any{s.namespace, "queue", int64(0), int64(0)}, line},
		{"capQueueRate", capQueueRate, []any{s.namespace, "queue", int64(5)}, keyed},
		{"unsettled", unsettled, []any{s.namespace, "queue"}, keyed},
		{"capKeyRate", capKeyRate, []any{s.namespace, "queue", "key", int64(5)}, keyed},
		{
			"giveSlots", giveSlots,
			[]any{s.namespace, "queue", typeNames[:3], settledRuns},
			withKey(map[string][]string{"workers_live": nil}, limited),
		},
		{"capKeyRates", capKeyRates, []any{s.namespace, "queue", "", settledKeys}, states},
		{
			"recheckKeys", recheckKeys,
			[]any{s.namespace, "queue", "", settledKeys},
			withKey(map[string][]string{"consumers_key": {"run_key", "namespace_id"}}, keyed),
		},
		{"unsettledQueues", unsettledQueues, []any{s.namespace, int64(5)}, states},
		{"markSettled", markSettled, []any{s.namespace, "queue", int64(5)}, keyed},
		{"deleteQueue", deleteQueue, []any{s.namespace, "queue"}, keyed},
		{"pruneKeys", pruneKeys, []any{s.namespace, "", "", 1000}, states},
		{"missedRuns", missedRuns, s.Claims.missedArgs(req), withKey(both, pauses)},
		{"runsOfClaim", runsOfClaim, []any{
			s.namespace, "queue", typeNames, priorities, array(leasesOf(lease)),
			pg.Micros(time.Minute),
		}, both},
		{"recordSteps", recordSteps, recordColumns.args(s.namespace, records), byKey},
		{
			"publishRecorded", publishRecorded, recordedEventColumns.args(s.namespace, recordedEvents(publishings)),
			withKey(byKey, byEvent),
		},
		{"publishRuns", publishRuns, s.runEvents(ended, ids, make([]uuid.UUID, len(ids))), withKey(byKey, byEvent)},
		{"recordCompensations", recordCompensations, compensationColumns.args(s.namespace, registered), byKey},
		{
			"compensatingRun", compensatingRun,
			[]any{s.namespace, ids[0]},
			withKey(byKey, map[string][]string{parentIndex: {"parent_run_id", "namespace_id"}}),
		},
		{"compensationsOf", compensationsOf, []any{s.namespace, ids[0]}, withKey(byKey, byStep)},
		{"compensationEnded", compensationEnded, []any{s.namespace, ids[0], "step", 1, Completed, "", ""}, byAttempt},
		{"compensationStarted", compensationStarted, []any{s.namespace, ids[0], "step", 1, uuid.New()}, byAttempt},
		{"compensationRefused", compensationRefused, []any{
			s.namespace, ids[0], pg.Micros(refusedPause), "on", "step", 1,
			"why",
		}, withKey(byKey, byAttempt)},
		{"compensationAwaited", compensationAwaited, []any{s.namespace, ids[0], 1, "children"}, byKey},
		{
			"dueCompensations", dueCompensations,
			[]any{s.namespace, 100},
			map[string][]string{"workflow_runs_compensating": {"available_at", "namespace_id"}},
		},
		{"lockRuns", lockRuns, []any{s.namespace, runs}, byKey},
		{"lockFreeRuns", lockFreeRuns, []any{s.namespace, runs}, byKey},
		{"suspendRuns", suspendRuns, suspendColumns.args(s.namespace, suspensions), byKey},
		{
			"forgetFailures", forgetFailures, forgetColumns.args(s.namespace, (&Flush{Finishes: failures}).forgotten()),
			withKey(byKey, map[string][]string{stepsKey: {"run_id", "step_id", "namespace_id"}}),
		},
		{"completeRuns", completeRuns, completeColumns.args(s.namespace, finishes), byKey},
		{"finishRuns", finishRuns, finishColumns.args(s.namespace, finishes), withKey(byKey, byStep)},
		{"extendLeases", extendLeases, []any{s.namespace, runs, leases, pg.Micros(time.Minute)}, byKey},
		{
			"heldStates", heldStates,
			[]any{s.namespace, runs, leases},
			withKey(byKey, map[string][]string{pausesKey: {"namespace_id"}}),
		},
		{"history", history, []any{s.namespace, runs, 1000}, byStep},
		{"runInputs", runInputs, []any{s.namespace, runs, 1000}, byInput},
		{"loadSize", loadSize, []any{s.namespace, ids[0]}, map[string][]string{
			itemsKey: {"run_id", "namespace_id"},
			stepsKey: {"run_id", "namespace_id"}, signalsKey: {"run_id", "namespace_id"},
			runsKey: {"run_id", "namespace_id"},
		}},
		{"crashLoopEvidence", crashLoopEvidence, []any{s.namespace, ids[0], time.Now()}, byStep},
		{"stepAttempts", stepAttempts, []any{s.namespace, ids[0], false, []string{"a"}}, withKey(byKey, byStep)},
		{"resolveRuns", resolveRuns, []any{s.namespace, runs}, byKey},
		{"resolveSteps", resolveSteps, []any{s.namespace, runs, steps, attempts}, byAttempt},
		{"runsOfWorker", runsOfWorker, []any{
			s.namespace, uuid.New(),
			[]string{"queue"},
			typeNames[:3],
			pg.Micros(time.Minute), uuid.Nil, releaseBatch,
		}, both},
		{"releaseRuns", releaseRuns, []any{s.namespace, uuid.New(), runs}, byKey},
		{"endedRuns", endedRuns, []any{s.namespace, runs}, byKey},
		{"missingRuns", missingRuns, []any{s.namespace, runs}, byKey},
		{"existingRuns", existingRuns, []any{s.namespace, runs}, byKey},
		{"activeByExternalID", activeByExternalID, []any{s.namespace, runs}, byExternal},
		{"endedByExternalID", endedByExternalID, []any{s.namespace, runs}, byExternal},
		{"findActive", findActive, []any{s.namespace, "id"}, byExternal},
		{"findEnded", findEnded, []any{s.namespace, "id"}, byExternal},
		{
			"getRun", getRun,
			[]any{s.namespace, ids[0]},
			withKey(byInput, map[string][]string{"workers_pkey": {"worker_id", "namespace_id"}}),
		},
		{"lockForChange", lockForChange, []any{s.namespace, ids[0]}, byKey},
		{
			"descendants", descendants,
			[]any{s.namespace, runs, false},
			map[string][]string{parentIndex: {"parent_run_id", "namespace_id"}},
		},
		{"lockFamily", lockFamily, []any{s.namespace, runs, runs}, byKey},
		{"endRuns", endRuns, []any{
			s.namespace, runs, steps, steps, steps, make([]bool, len(ids)), true,
			pg.Micros(time.Minute), false,
		}, withKey(byKey, byStep)},
		{
			"overdueRuns", overdueRuns,
			[]any{s.namespace, "-infinity", uuid.Nil, pg.Micros(time.Second), 500},
			map[string][]string{deadlineIndex: {"namespace_id", "deadline_at"}},
		},
		{
			"activeChildren", activeChildren,
			[]any{s.namespace, ids[0]},
			map[string][]string{parentIndex: {"parent_run_id", "namespace_id"}},
		},
		{"checkPremises", checkPremises, checkColumns.args(s.namespace,
			[]check{{run: ids[0], kind: recordThere, name: "step", number: 1}}), byPremise},
		{"findMissing", findMissing, checkColumns.args(s.namespace,
			[]check{{run: ids[0], kind: recordThere, name: "step", number: 1}}), byPremise},
		{"stillHeld", stillHeld, []any{s.namespace, ids[0], lease}, byKey},
		{"insertChildren", insertChildren, childColumns.args(s.namespace, children(started)), byKey},
		{
			"changeMetadata", changeMetadata,
			metadataColumns.args(s.namespace, []*metadataChange{{run: ids[0], lease: uuid.New()}}),
			map[string][]string{runsKey: {"run_id", "namespace_id"}},
		},
		{"dueAmong", dueAmong, []any{s.namespace, ids[:2]}, byKey},
		{
			"setProgress", setProgress,
			progressColumns.args(s.namespace, []*Progress{{RunID: ids[0], Lease: lease, Text: "text"}}), byKey,
		},
		{
			"recordedMetadata", recordedMetadata,
			[]any{s.namespace, ids[0]},
			map[string][]string{stepsKey: {"run_id", "namespace_id"}},
		},
		{
			"setMetadata", setMetadata,
			[]any{s.namespace, uuid.New(), "{}"},
			map[string][]string{runsKey: {"run_id", "namespace_id"}},
		},
		{
			"consumeSignals", consumeSignals, consumeColumns.args(s.namespace, records),
			map[string][]string{
				signalsKey: {"run_id", "name", "sequence", "namespace_id"},
				stepsKey:   {"run_id", "step_id", "attempt_number", "namespace_id"},
			},
		},
		{
			"storeMessages", storeMessages, messageColumns.args(s.namespace, messages, true, MostUnread),
			map[string][]string{
				runsKey: {"run_id", "namespace_id"}, signalsKey: {"run_id", "namespace_id"},
				"signals_signal_id": {"signal_id", "run_id", "namespace_id"},
			},
		},
		{
			"resolveMessages", resolveMessages,
			[]any{s.namespace, runs, runs, MostUnread},
			map[string][]string{
				runsKey: {"run_id", "namespace_id"}, signalsKey: {"run_id", "namespace_id"},
				"signals_signal_id": {"signal_id", "run_id", "namespace_id"},
			},
		},
		{
			"noteFullInbox", noteFullInbox,
			[]any{s.namespace, ids[0]},
			map[string][]string{runsKey: {"run_id", "namespace_id"}},
		},
		{
			"messageRuns", messageRuns,
			[]any{s.namespace, runs},
			map[string][]string{"signals_signal_id": {"signal_id", "namespace_id"}},
		},
		{
			"unreadSignals", unreadSignals,
			[]any{s.namespace, runs, 1000},
			map[string][]string{signalsKey: {"run_id", "namespace_id"}},
		},
		{
			"unreadOfName", unreadOfName,
			[]any{s.namespace, ids[0], "signal", int64(0), 1000},
			map[string][]string{signalsKey: {"run_id", "namespace_id", "name", "sequence"}},
		},
		{
			"setAsideMessages", setAsideMessages,
			setAsideColumns.args(s.namespace, []*SetAside{{RunID: ids[0], Lease: lease, Name: "signal", Sequence: 1}}),
			map[string][]string{runsKey: {"run_id", "namespace_id"}, signalsKey: {
				"run_id", "name", "sequence",
				"namespace_id",
			}},
		},
		{
			"removeMessage", removeMessage,
			[]any{s.namespace, ids[0], "id", true},
			map[string][]string{"signals_signal_id": {"signal_id", "run_id", "namespace_id"}},
		},
		{
			"messageReadBy", messageReadBy,
			[]any{s.namespace, ids[0], "id"},
			map[string][]string{"signals_signal_id": {"signal_id", "run_id", "namespace_id"}},
		},
		{"endedChildren", endedChildren, []any{s.namespace, runs, 1000}, withKey(byKey, byStep)},
		{"runWakeups", runWakeups, []any{s.namespace, runs}, byKey},
		{"lockWaiter", lockWaiter, []any{s.namespace, ids[0]}, byKey},
		{
			"takenPlaces", takenPlaces,
			[]any{s.namespace, "queue", 5},
			map[string][]string{slotsIndex: {"task_queue", "namespace_id"}},
		},
		{"updateRun", updateRun, []any{
			s.namespace, ids[0], "other", 1, true, 2, true, "{}", true, int64(0),
			int64(0),
		}, byKey},
		{
			"childrenOf", childrenOf,
			[]any{s.namespace, runs, runs, 100},
			map[string][]string{parentIndex: {"parent_run_id", "namespace_id", "run_id"}},
		},
		{
			"childBeyond", childBeyond,
			[]any{s.namespace, runs},
			map[string][]string{parentIndex: {"parent_run_id", "namespace_id"}},
		},
		{"statesBelow", statesBelow, []any{s.namespace, runs, ids[0]}, byKey},
		{"rowsOfRuns", rowsOfRuns, []any{s.namespace, runs, 1000}, gone},
		{"markDeleted", markDeleted, []any{s.namespace, runs}, byKey},
		{"deleteRuns", deleteRuns, []any{s.namespace, runs}, gone},
		{"recordedDeletions", recordedDeletions, []any{s.namespace, runs}, gone},
		{
			"findDeleted", findDeleted,
			[]any{s.namespace, "id"},
			map[string][]string{"run_events_deleted_id": {"external_id", "namespace_id"}},
		},
		{
			"pruneDeletions", pruneDeletions,
			[]any{s.namespace, pg.Micros(time.Hour), 500},
			map[string][]string{
				"run_events_deleted": {"occurred_at", "namespace_id"},
				eventsKey:            {"run_id", "namespace_id"},
			},
		},
		{
			"insertAudit", insertAudit,
			auditColumns.args(s.namespace, []AuditEntry{
				NewEntry(EventPaused, OnRun, ids[0].String(), Why{}),
				NewEntry(EventPaused, OnAll, "", Why{}),
			}), byKey,
		},
		{
			"pruneAudit", pruneAudit,
			[]any{s.namespace, pg.Micros(time.Hour), 500},
			map[string][]string{
				"audit_log_time": {"occurred_at", "namespace_id"},
				"audit_log_pkey": {"entry_id", "namespace_id"},
			},
		},
		{"pauseRun", pauseRun, []any{s.namespace, ids[0]}, byKey},
		{"stateForPause", stateForPause, []any{s.namespace, ids[0]}, byKey},
		{"unpauseRun", unpauseRun, []any{s.namespace, ids[0]}, withKey(byKey,
			map[string][]string{"workers_pkey": {"worker_id", "namespace_id"}, "workers_live": {"namespace_id"}})},
		{"noteRelease", noteRelease, []any{s.namespace, ids[0]}, withKey(byKey, pauses)},
		{"leaveAllChanges", leaveAllChanges, []any{s.namespace, ""}, map[string][]string{"consumers_key": {
			"run_key",
			"namespace_id",
		}, keyedIndex: {"key_scope", "namespace_id"}}},
		{
			"insertRuns", insertRuns,
			insertColumns.args(s.namespace,
				[]*NewRun{{
					RunID: uuid.New(), Queue: "queue", Type: "type", Priority: 3,
					Claim: &NewClaim{LeaseTimeout: time.Minute},
				}}),
			withKey(pauses, map[string][]string{queuesKey: {"namespace_id"}}),
		},
		{
			"insertRunsWithoutKeys", insertRunsWithoutKeys,
			insertColumns.args(s.namespace,
				[]*NewRun{{
					RunID: uuid.New(), Queue: "queue", Type: "type", Priority: 3,
					Claim: &NewClaim{LeaseTimeout: time.Minute},
				}}),
			withKey(pauses, map[string][]string{queuesKey: {"namespace_id"}}),
		},
		{"insertPendingWithoutKeys", insertPendingWithoutKeys, insertColumns.args(s.namespace,
			[]*NewRun{{RunID: uuid.New(), Queue: "queue", Type: "type", Priority: 3}}), nil},
		{"resumeRun", resumeRun, []any{s.namespace, ids[0]}, byKey},
		{"forgetNamed", forgetNamed, []any{s.namespace, ids[0], []string{"step"}}, withKey(byKey, byStep)},
		{"compensated", compensated, []any{s.namespace, ids[0]}, byKey},
		{"retryCompensations", retryCompensations, []any{s.namespace, ids[0]}, withKey(byKey, byStep)},
		{
			"slotOfRun", slotOfRun,
			[]any{s.namespace, ids[0]},
			withKey(byKey, map[string][]string{queuesKey: {"task_queue", "namespace_id"}}),
		},
		{
			"lockKey", lockKey,
			[]any{s.namespace, "queue", "key-1"},
			map[string][]string{"run_keys_pkey": {"key_scope", "run_key", "namespace_id"}},
		},
		{
			"takenOfKey", takenOfKey,
			[]any{s.namespace, "queue", "key-1"},
			map[string][]string{
				"run_keys_pkey": {"key_scope", "run_key", "namespace_id"},
				queuesKey:       {"task_queue", "namespace_id"}, slotsIndex: {"task_queue", "namespace_id"},
				"workflow_runs_group_slot": {"run_key", "namespace_id"},
			},
		},
		{
			"holderOfGroup", holderOfGroup,
			[]any{s.namespace, "key-1"},
			map[string][]string{"workflow_runs_group_slot": {"run_key", "namespace_id"}},
		},
		{
			"hasPlaces", hasPlaces,
			[]any{s.namespace, "queue"},
			map[string][]string{queuesKey: {"task_queue", "namespace_id"}},
		},
		{"resumeCompensating", resumeCompensating, []any{s.namespace, ids[0], true}, byKey},
		{"holdBesideParent", holdBesideParent, []any{s.namespace, ids[0], uuid.New()}, byKey},
		{
			"otherActive", otherActive,
			[]any{s.namespace, ids[0]},
			map[string][]string{externalID: {"external_id", "namespace_id"}, runsKey: {"run_id", "namespace_id"}},
		},
		{
			"lockConsumerOfRun", lockConsumerOfRun,
			[]any{s.namespace, ids[0]},
			map[string][]string{"consumers_pkey": {"consumer", "namespace_id"}, runsKey: {"run_id", "namespace_id"}},
		},
		{
			"keepConsumersOfKey", keepConsumersOfKey,
			[]any{s.namespace, "key-1"},
			map[string][]string{"consumers_key": {"run_key", "namespace_id"}},
		},
		{
			"heldConsumers", heldConsumers,
			[]any{s.namespace, consumers},
			map[string][]string{"consumers_pkey": {"consumer", "namespace_id"}},
		},
		{
			"templateActive", templateActive,
			[]any{s.namespace, ids[0], runs},
			map[string][]string{
				"workflow_runs_active_fired": {"schedule_id", "namespace_id"},
				"workflow_runs_group_slot":   {"run_key", "namespace_id"}, scheduleKey: {"schedule_id", "namespace_id"},
			},
		},
		{"startConsumers", startConsumers, []any{
			s.namespace, consumers, runs, int64(5),
			[]int64{1},
			[]int64{1},
			pg.Micros(unsettledPause),
			[]string{},
			false,
		}, consuming},
		{
			"recheckConsumers", recheckConsumers,
			[]any{s.namespace, clause.MaxQueues},
			withKey(map[string][]string{"consumers_pkey": {"consumer", "namespace_id"}}, consuming),
		},
		{"commitConsumers", commitConsumers, commitColumns.args(s.namespace, ends), consuming},
		{"commitSubscriptions", commitSubscriptions, commitTopicColumns.args(s.namespace, topicEnds), consuming},
		{
			"triggerConsumer", triggerConsumer,
			[]any{s.namespace, "consumer-1", true},
			withKey(map[string][]string{"workflow_runs_group_slot": {"run_key", "namespace_id"}}, consuming),
		},
		{"partHolder", partHolder, []any{int16(1)}, withKey(map[string][]string{
			"event_parts_pkey":   {"part"},
			"subscriptions_pkey": nil, "subscriptions_consumer": nil,
		}, consuming)},
		{
			"skipEvent", skipEvent,
			[]any{s.namespace, "topic", "consumer-1", "id", int64(5)},
			withKey(eventsByID, consuming),
		},
		{"runStatus", runStatus, []any{s.namespace, ids[0]}, byKey},
		{"lockOver", lockOver, []any{s.namespace, ids[0]}, byKey},
		{"restartRun", restartRun, []any{
			s.namespace, ids[0], uuid.New(), "", 0, false,
			[]byte{},
			true,
			[]byte{},
			"",
		}, byInput},
		{"unhashedInput", unhashedInput, []any{s.namespace, ids[0]}, byInput},
		{"findForkPoint", findForkPoint, []any{s.namespace, ids[0], "step"}, byStep},
		{"hasOutcome", hasOutcome, []any{s.namespace, ids[0]}, byKey},
		{"copySteps", copySteps, []any{s.namespace, ids[0], uuid.New(), "step", time.Now(), 1, true, 1}, byStep},
		{"runEvents", runEvents, []any{s.namespace, ids[0]}, gone},
		{"eventExists", eventExists, []any{s.namespace, ids[0], lease}, gone},
		{"copySignals", copySignals, []any{s.namespace, ids[0], uuid.New()}, gone},
		{"nextTemplate", nextTemplate, []any{s.namespace}, map[string][]string{dueIndex: {"next_at"}}},
		{"dueTemplates", dueTemplates, []any{s.namespace, 100}, withKey(map[string][]string{dueIndex: {"next_at"}},
			schedules)},
		{"insertFired", insertFired, []any{
			s.namespace, runs, runs, versions64(ids), make([]bool, len(ids)),
			[]string{""},
		}, bySchedule},
		{"advanceTemplates", advanceTemplates, []any{
			s.namespace, runs, versions64(ids), versions64(ids), steps,
			make([]bool, len(ids)),
		}, bySchedule},
		{"releaseQueued", releaseQueued, []any{s.namespace, nil}, withKey(map[string][]string{queuedIndex: nil},
			schedules)},
		{
			"releaseSomeQueued", releaseQueued,
			[]any{s.namespace, array(ids)},
			withKey(map[string][]string{queuedIndex: nil}, schedules),
		},
		{"queuedRuns", queuedRuns, []any{s.namespace}, withKey(map[string][]string{queuedIndex: nil}, schedules)},
		{"blockingRuns", blockingRuns, []any{s.namespace}, withKey(map[string][]string{queuedIndex: nil}, schedules)},
		{"activeFired", activeFired, []any{s.namespace, ids[0]}, schedules},
		{"lockTemplate", lockTemplate, []any{s.namespace, ids[0]}, bySchedule},
		{"getTemplate", getTemplate, []any{s.namespace, ids[0]}, withKey(bySchedule, schedules)},
		{
			"listTemplates", listTemplates,
			[]any{s.namespace, "", 100, ""},
			withKey(map[string][]string{namesIndex: {"name", "namespace_id"}}, schedules),
		},
		{"firedRuns", firedRuns, []any{s.namespace, runs}, byKey},
		{
			"updateTemplate", updateTemplate, s.Schedules.templateArgs(&Template{ID: ids[0], Spec: []byte("{}")}),
			bySchedule,
		},
		{"deleteTemplate", deleteTemplate, []any{s.namespace, ids[0]}, bySchedule},
		{
			"expiredRuns", expiredRuns, append([]any{s.namespace, uuid.Nil, uuid.Max}, append(keep.args(), 2000)...),
			byKey,
		},
		{"pruneRuns", pruneRuns, append([]any{s.namespace, runs}, append(keep.args(), 1000)...), gone},
		{"pruneSteps", pruneSteps, []any{s.namespace, ids[0], 1000}, gone},
		{"lockWaiting", lockWaiting, []any{s.namespace, runs}, byWindow},
		{"windowStates", windowStates, []any{s.namespace, runs}, byWindow},
		{"updateWindows", updateWindows, updateColumns.args(s.namespace, windows), byWindow},
		{"changeWaiting", changeWaiting, changeColumns.args(s.namespace, changes), byWindow},
		{
			"itemsOfStarts", itemsOfStarts,
			[]any{s.namespace, runs},
			map[string][]string{"start_items_item": {"item_id", "namespace_id"}},
		},
		{
			"pruneWindows", pruneWindows,
			[]any{s.namespace, pg.Micros(time.Minute), 100},
			map[string][]string{
				"start_windows_closed": {"closes_at", "namespace_id"},
				windowsKey:             {"window_id", "namespace_id"},
			},
		},
		{"beginSuspect", beginSuspect, []any{s.namespace, ids[0], lease}, byKey},
		{"resetRecoveries", resetRecoveries, []any{s.namespace, ids[0], lease}, byKey},
		{
			"activeTypes", clause.ActiveTypes,
			[]any{s.namespace, typeNames[:3], clause.MaxQueues},
			map[string][]string{claimIndex: claimed[:3]},
		},
		{
			"busyQueues", busyQueues,
			[]any{s.namespace, pg.Micros(time.Minute)},
			withKey(map[string][]string{claimIndex: claimed, "workers_live": nil}, withKey(line, pauses)),
		},
		{
			"leasesGiven", leasesGiven,
			[]any{
				s.namespace, uuid.New(), typeNames[:3], typeNames[:3], int64(0),
				pg.Micros(LateClaims), pg.Micros(time.Minute), 1000,
			},
			map[string][]string{claimIndex: claimed, deadlineIndex: {"namespace_id", "deadline_at"}},
		},
		{
			"markedRuns", markedRuns,
			[]any{s.namespace, uuid.Nil, 100},
			map[string][]string{"workflow_runs_deleted": {"run_id", "namespace_id"}},
		},
		{"leaveLimit", leaveLimit, placeColumns.args(s.namespace, places), placed},
		{"freeSlots", freeSlots, []any{s.namespace, "limit", pg.Micros(limitOver)}, placed},
		{
			"serveLimit", serveLimit,
			append(append([]any{s.namespace, "limit"}, placeColumns.args(s.namespace, places)[1:]...),
				pg.Micros(LimitSoon), pg.Micros(limitKept), limitLate),
			withKey(map[string][]string{pausesKey: {"run_key", "namespace_id"}}, placed),
		},
		{
			"serveLimitUnpaused", serveLimitUnpaused,
			append(append([]any{s.namespace, "limit"}, placeColumns.args(s.namespace, places)[1:]...),
				pg.Micros(LimitSoon), pg.Micros(limitKept), limitLate), placed,
		},
		{"hurryLimit", hurryLimit, []any{s.namespace, "limit", 0.5, true, pg.Micros(LimitSoon)}, placed},
		{"stalledLimits", stalledLimits, []any{s.namespace}, placed},
		{"usedLimit", usedLimit, []any{s.namespace, "limit"}, placed},
	}
}

func withKey(a, b map[string][]string) map[string][]string {
	out := maps.Clone(b)
	maps.Copy(out, a)
	return out
}

func versions64(ids []uuid.UUID) []int64 { return make([]int64, len(ids)) }

// loadRuns inserts runs as a busy year does: half of them sleep, in the part of the index that workers read, and half
// have ended.
const loadRuns = `
	INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, version, status, available_at,
		locked_by, lease, finished_at, external_id, input, run_key, key_scope)
	SELECT ('01900000' || lpad(to_hex(g), 8, '0') || '7000800000000000')::text::uuid, 'test', 'queue', 'type', 1,
		CASE WHEN g % 2 = 0 THEN 'SLEEPING' ELSE 'COMPLETED' END,
		CASE WHEN g % 2 = 0 THEN now() + interval '1 day' + g * interval '1 ms' END,
		NULL, NULL, CASE WHEN g % 2 = 1 THEN now() END, CASE WHEN g % 50 < 2 THEN 'id-' || g END, '\x7b7d',
		CASE WHEN g % 20 = 4 THEN 'key-' || g % 1000 END, CASE WHEN g % 20 = 4 THEN 'queue' END
	FROM generate_series(1, $1::int) AS g`

const loadSteps = `
	INSERT INTO kagzi.step_runs (run_id, step_id, attempt_number, namespace_id, status, step_kind, run_attempt,
		first_attempt, started_at, finished_at)
	SELECT run_id, 'step', 1, namespace_id, 'COMPLETED', 'FUNCTION', 1, 1, now(), now() FROM kagzi.workflow_runs
		LIMIT 300000`

const loadSchedules = `
	INSERT INTO kagzi.schedules (schedule_id, namespace_id, name, cron_expr, max_catchup, spec, paused, cursor_at,
		next_at, task_queue, workflow_type, priority)
	SELECT run_id, namespace_id, 'schedule ' || run_id, '0 12 * * *', 0, '{}', false, now(), now() + interval '1 day',
		'queue', 'type', 3
	FROM kagzi.workflow_runs LIMIT 10000`

const loadKeys = `
	INSERT INTO kagzi.run_keys (key_scope, run_key, namespace_id, available_at)
	SELECT DISTINCT key_scope, run_key, namespace_id, timestamptz 'infinity' FROM kagzi.workflow_runs
		WHERE run_key IS NOT NULL`

const loadMessages = `
	INSERT INTO kagzi.signals (run_id, namespace_id, name, sequence, signal_id)
	SELECT run_id, namespace_id, 'signal', 1, run_id FROM kagzi.workflow_runs`

const loadWindows = `
	WITH w AS (
		INSERT INTO kagzi.start_windows (window_id, namespace_id, policy, workflow_type, start_key, run_id, closes_at)
		SELECT run_id, namespace_id, 'batch', 'type', run_id, run_id, now() + interval '1 day' FROM kagzi.workflow_runs
			LIMIT 10000
	)
	INSERT INTO kagzi.start_items (run_id, place, namespace_id, item_id, input)
	SELECT run_id, 0, namespace_id, run_id, '{}' FROM kagzi.workflow_runs LIMIT 10000`

const loadConsumers = `
	WITH c AS (
		INSERT INTO kagzi.consumers (consumer, namespace_id, run_key, task_queue, priority, least_wake, most_wake,
			pause_on_failure)
		SELECT 'consumer-' || g, 'test', 'consumer-' || g, 'queue', 2, interval '1 s', interval '1 day', true
			FROM generate_series(1, 10000) AS g
		RETURNING consumer
	)
	INSERT INTO kagzi.subscriptions (topic, consumer, namespace_id, run_key, task_queue, subscribed, position,
		looked_at)
	SELECT 'topic', c.consumer, 'test', c.consumer, 'queue', true, 0, 0 FROM c`

// asNew empties tables, and makes the planner know nothing of them. An earlier test may have left indexes that are
// empty but not small, and statistics. An autovacuum that comes beside a transaction that inserts many rows counts
// their pages, and no rows: until the next one, which is due at once, the planner takes the tables for empty.
func asNew(t *testing.T, s *Store, tables string) {
	t.Helper()
	for table := range strings.SplitSeq(tables, ", ") {
		exec(t, s.pool, `ALTER TABLE `+table+` SET (autovacuum_enabled = off)`)
		t.Cleanup(func() { // other tests may get the database; t's context has ended
			if _, err := s.pool.Exec(context.Background(), `ALTER TABLE `+table+
				` RESET (autovacuum_enabled)`); err != nil {
				t.Error(err)
			}
		})
	}
	exec(t, s.pool, `TRUNCATE `+tables)
	forgetStatistics(t, s)
}

func forgetStatistics(t *testing.T, s *Store) {
	t.Helper()
	exec(t, s.pool, `DELETE FROM pg_statistic WHERE starelid IN (SELECT oid FROM pg_class
		WHERE relnamespace = 'kagzi'::regnamespace)`)
	exec(t, s.pool, `UPDATE pg_class SET reltuples = -1, relpages = 0 WHERE relnamespace = 'kagzi'::regnamespace
		AND relkind = 'r'`)
}

// The statements of the hot paths use the indexes that were made for them, whatever statistics the planner has.
func TestPlansOfManyRows(t *testing.T) {
	t.Parallel()
	checkPlans(t, plannedStatements)
}

// checkPlans checks the plans of statements while the tables are small and large, with statistics and without.
func checkPlans(t *testing.T, statements func(*Store, []uuid.UUID) []planned) {
	t.Helper()
	rows := campaign.Size(100_000, 300_000)
	db := dbtest.Database(t, dbtest.Unchecked())
	s := New(db.Pool, "test")
	const tables = `kagzi.workflow_runs, kagzi.step_runs, kagzi.schedules, kagzi.signals, kagzi.run_events, ` +
		`kagzi.audit_log, kagzi.run_keys, kagzi.key_changes, kagzi.queues, kagzi.start_windows, kagzi.start_items, ` +
		`kagzi.pauses, kagzi.consumers, kagzi.subscriptions`
	for part := range clause.EventParts {
		exec(t, s.pool, fmt.Sprintf(`ALTER TABLE kagzi.events_%d SET (autovacuum_enabled = off)`, part))
	}
	exec(t, s.pool, `TRUNCATE kagzi.events`)
	asNew(t, s, tables)
	check := func(state string, lists ...[]planned) {
		t.Helper()
		conn := dbtest.Connect(t, db.DSN)
		for _, p := range lists[0] {
			exec(t, conn, `PREPARE `+p.name+` AS `+p.sql, pgx.QueryExecModeSimpleProtocol)
			execute := "EXECUTE " + p.name + literals(t, conn, p)
			got := explain(t, prepared(t, conn), "EXPLAIN (FORMAT JSON)", execute, pgx.QueryExecModeSimpleProtocol)
			kept := one[bool](t, conn, `SELECT generic_plans > 0 FROM pg_prepared_statements WHERE name = $1`,
				strings.ToLower(p.name))
			if wrong := got.wrong(p); kept && len(wrong) > 0 {
				t.Errorf("%s, kept plan of %s: %s\n%s", state, p.name, strings.Join(wrong, "; "), got.text)
			}
			if !kept && len(lists) > 1 {
				t.Errorf("%s: %s is planned at every call", state, p.name)
			}
		}
		for _, list := range lists {
			for _, p := range list {
				got := explain(t, prepared(t, conn), "EXPLAIN (FORMAT JSON)", p.sql, p.args...)
				if wrong := got.wrong(p); len(lists) > 1 && len(wrong) > 0 {
					t.Errorf("%s, plan of %s for its arguments: %s\n%s", state, p.name,
						strings.Join(wrong, "; "), got.text)
				}
			}
		}
		exec(t, conn, `ROLLBACK`)
		if t.Failed() {
			t.Fatal("the planner's statistics: ", one[string](t, s.pool, `SELECT string_agg(concat_ws(' ', relname,
				relpages, reltuples, pg_relation_size(oid) / 8192), ', ')
				FROM pg_class WHERE relnamespace = 'kagzi'::regnamespace AND relkind IN ('r', 'i')`))
		}
	}

	// Plans made while the tables are empty or small stay in use until autovacuum or an operator analyzes.
	fake := make([]uuid.UUID, 20)
	for i := range fake {
		fake[i] = uuid.New()
	}
	if campaign.Long {
		check("new tables", statements(s, fake))
	}
	exec(t, s.pool, `VACUUM ANALYZE `+tables)
	if campaign.Long {
		check("empty tables", statements(s, fake))
	}

	// The planner's statistics now say that the tables are empty.
	exec(t, s.pool, loadRuns, rows)
	exec(t, s.pool, loadSteps)
	exec(t, s.pool, loadSchedules)
	exec(t, s.pool, loadMessages)
	exec(t, s.pool, loadKeys)
	exec(t, s.pool, loadWindows)
	exec(t, s.pool, loadConsumers)
	ids := func(n int) []uuid.UUID {
		return column[uuid.UUID](t, s.pool, `SELECT run_id FROM kagzi.step_runs OFFSET 1000 LIMIT $1`, n)
	}
	few, most := statements(s, ids(20)), statements(s, ids(1000))

	check("stale statistics", few, most)
	exec(t, s.pool, `ANALYZE `+tables)
	check("fresh statistics", few, most)
	forgetStatistics(t, s)
	check("missing statistics", few, most)
	if !campaign.Long {
		return
	}

	// If autovacuum runs while no run is active, the indexes of active runs look empty.
	exec(t, s.pool, `TRUNCATE `+tables)
	exec(t, s.pool, loadRuns, 200_000)
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET status = 'COMPLETED', available_at = NULL, finished_at = now()`)
	exec(t, s.pool, loadSteps)
	exec(t, s.pool, loadSchedules)
	exec(t, s.pool, loadMessages)
	exec(t, s.pool, loadKeys)
	exec(t, s.pool, loadWindows)
	exec(t, s.pool, loadConsumers)
	exec(t, s.pool, `VACUUM ANALYZE `+tables)
	few = statements(s, ids(20))
	check("all runs over", few, statements(s, ids(1000)))

	for _, n := range []int{5, 100, 1000, 30000} {
		exec(t, s.pool, `TRUNCATE `+tables)
		forgetStatistics(t, s)
		exec(t, s.pool, loadRuns, n)
		exec(t, s.pool, loadSteps)
		exec(t, s.pool, loadSchedules)
		exec(t, s.pool, loadMessages)
		exec(t, s.pool, loadKeys)
		exec(t, s.pool, loadWindows)
		exec(t, s.pool, loadConsumers)
		check(fmt.Sprintf("%d runs, never analyzed", n), few)
		exec(t, s.pool, `VACUUM ANALYZE `+tables)
		check(fmt.Sprintf("%d runs", n), few)
	}
}

// prepared begins a transaction as the store does for the statements that it sends, or begins it anew.
func prepared(t *testing.T, conn *pgx.Conn) *pgx.Conn {
	t.Helper()
	exec(t, conn, `ROLLBACK`)
	exec(t, conn, `BEGIN`)
	exec(t, conn, pg.ApplySettings)
	return conn
}

// literals returns the arguments of p as a list for EXECUTE.
func literals(t *testing.T, conn *pgx.Conn, p planned) string {
	t.Helper()
	d, err := conn.Prepare(t.Context(), p.name+"_described", p.sql)
	if err != nil {
		t.Fatal(err)
	}
	parts := make([]string, len(p.args))
	for i, arg := range p.args {
		text, err := conn.TypeMap().Encode(d.ParamOIDs[i], pgtype.TextFormatCode, arg, nil)
		if err != nil {
			t.Fatalf("%s: $%d: %v", p.name, i+1, err)
		}
		if parts[i] = "NULL"; text != nil {
			parts[i] = "'" + strings.ReplaceAll(string(text), "'", "''") + "'"
		}
	}
	return "(" + strings.Join(parts, ", ") + ")"
}

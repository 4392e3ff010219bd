package main

import "time"

// Mutants returns all mutants, those of the store first.
func Mutants() []Mutant {
	var all []Mutant
	for _, some := range [][]Mutant{
		leaseMutants, claimMutants, timeMutants, orderMutants, wakeMutants, retryMutants, longMutants,
		eventMutants, moveMutants,
	} {
		all = append(all, some...)
	}
	return all
}

// The faults that most mutants need.
const (
	rivals    = "F2 two workers"
	terminate = "F26 SIGTERM$"
)

// rounds are rounds with some faults.
func rounds(by, faults string, seeds ...uint64) Shown {
	return Shown{Seeds: seeds, Duration: 40 * time.Second, Faults: faults, By: by}
}

// with returns the rounds with more flags.
func (s Shown) with(flags string) Shown {
	s.Flags = flags
	return s
}

// calm are rounds whose load alone shows a mistake: the only fault is one that a fleet has every day.
func calm(by string, seeds ...uint64) Shown {
	return Shown{Seeds: seeds, Duration: 15 * time.Second, Faults: terminate, By: by}
}

// leaseMutants are mistakes about who may write.
var leaseMutants = []Mutant{
	{
		Name: "finish without the lease", Breaks: "only the holder of the lease changes a run",
		Edits: []Edit{
			{
				"store/finish.go", "AND r.lease = u.lease AND r.status = 'RUNNING' AND r.cancel_requested_at IS NULL",
				"AND r.status = 'RUNNING' AND r.cancel_requested_at IS NULL",
			},
			{"store/finish.go", "AND k.lease = u.lease AND k.status = 'RUNNING'", "AND k.status = 'RUNNING'"},
		},
		Shown: rounds("S4", rivals, 2, 1, 3).with("-customers 20"),
	},
	{
		Name: "record without the lease", Breaks: "only the holder of the lease changes a run",
		Edits: []Edit{
			{
				"store/records.go", "AND r.lease = u.lease AND r.status = 'RUNNING'\n\t\tAND NOT (u.unheard",
				"AND r.status = 'RUNNING'\n\t\tAND NOT (u.unheard",
			},
		},
		Shown: rounds("S4|S5", rivals, 2, 1, 3).with("-customers 20"),
	},
	{
		Name: "suspend without the lease", Breaks: "only the holder of the lease changes a run",
		Edits: []Edit{
			{
				"store/suspend.go", "AND q.namespace_id = $1 AND q.lease = u.lease AND q.status = 'RUNNING'",
				"AND q.namespace_id = $1 AND q.status = 'RUNNING'",
			},
		},
		Shown: rounds("S4", rivals, 2, 1, 3).with("-customers 20"),
	},
	{
		Name: "no look at the time before a step", Breaks: "a recorded step is not executed again",
		Edits: []Edit{
			{
				"internal/replay/lease.go", `	if why := e.notHeld(); why != "" {`,
				`	if why := e.notHeld(); why != "" && e.stopped() {`,
			},
		},
		Shown: Shown{Test: "-run TestFrozenWorkerCallsNothing ./test/crash"},
	},
	{
		Name: "a lease is counted from the answer", Breaks: "a recorded step is not executed again",
		Edits: []Edit{
			{
				"store/leases.go", "func termOf(asked, now, until time.Time) Term { return Term{asked, " +
					"asked.Add(until.Sub(now))} }",
				"func termOf(_, now, until time.Time) Term { return Term{time.Now(), time.Now().Add(until.Sub(now))} }",
			},
		},
		// two have leases that are shorter than the time to be stale
		Shown: rounds("S6", "F2 freeze a worker that claims", 3, 6, 2),
	},
	{
		Name: "a worker that was declared dead keeps its runs", Breaks: "a recorded step is not executed again",
		Edits: []Edit{
			{
				"internal/worker/heartbeater.go", "	h.roster.stopAll(standing.ErrLeaseLost) // dispatch does not " +
					"begin runs that a claim brings after this\n", "",
			},
		},
		// in rounds, the next heartbeat stops the runs soon enough
		Shown: Shown{Test: "-run DeclaredDeadWorkerRegistersAgain ./test/crash"},
	},
	{
		Name: "an intent that is found is called again", Breaks: "a step in doubt is not called again by itself",
		Edits: []Edit{
			{
				"internal/replay/step.go", `(spec.AtMostOnce || row.ErrorKind != "")`,
				`spec.AtMostOnce && row.Error != ""`,
			},
		},
		Shown: Shown{Test: "-run TestAKilledWorkerNeverPaysTwice ./test/crash"},
	},
	{
		Name: "a call does not wait for its intent", Breaks: "a step in doubt is not called again by itself",
		Edits: []Edit{
			{
				"internal/replay/step_doubt.go", "	b.record(r)\n	s.called",
				"	b.enqueue(r)\n	r.Outcome = store.Done\n	s.called",
			},
		},
		Shown: Shown{Test: "-run TestAKilledWorkerNeverPaysTwice ./test/crash"},
	},
}

// claimMutants are mistakes about who takes which run.
var claimMutants = []Mutant{
	{
		Name: "claim without SKIP LOCKED", Breaks: "a due run is picked up although another row is locked",
		Edits: []Edit{{
			"store/claim.go", "		FOR UPDATE SKIP LOCKED\n	) r\n	LIMIT (SELECT k.room",
			"		FOR UPDATE\n	) r\n	LIMIT (SELECT k.room",
		}},
		// in rounds, the claims between two full claims pass over the locked row
		Shown: Shown{Test: "-run Claim ./store"},
	},
	{
		Name: "no second look after a claim that a drain cut short", Breaks: "a drained worker leaves nothing",
		Edits: []Edit{{"internal/worker/claims_lost.go", "			if late := <-answer; len(late.Runs) > 0 " +
			"{\n				s.resolve(ctx, req, sent)\n			}\n", ""}},
		Shown: rounds("S12", "F26 SIGTERM during a claim", 5, 1, 2),
	},
	{
		Name: "claims take paused runs", Breaks: "nobody claims a paused run",
		Edits: []Edit{{
			"store/internal/clause/slots.go", "OR slot = 2) AND paused_at IS NULL`\n\n	// Waits is",
			"OR slot = 2)`\n\n	// Waits is",
		}},
		Shown: calm("verbs", 1, 2, 3),
	},
	{
		Name: "one look after a claim without an answer", Breaks: "a run under a lease that nobody holds is taken over",
		Edits: []Edit{{
			"internal/worker/claims_lost.go", "		} else if found || asked.Sub(sent) > store.LateClaims {",
			"		} else if found || !asked.Before(sent) {",
		}},
		Shown: Shown{Test: "-run TestClaimThatCommitsAfterItWasResolved ./test/crash"},
	},
	{
		Name: "records do not lock their run", Breaks: "a recorded step is not executed again",
		Edits: []Edit{
			{
				"store/records.go", "OR r.paused_at IS NOT NULL))\n\tFOR SHARE",
				"OR r.paused_at IS NOT NULL))\n\tOFFSET 0",
			},
		},
		Shown: Shown{Test: "-run Zombie ./store"},
	},
}

// timeMutants are mistakes about clocks.
var timeMutants = []Mutant{
	{
		// The machine's clock is that of the server, too. So the mutant has what an application's clock often is: a
		// second ahead.
		Name: "sleep by the application's clock", Breaks: "a sleep never ends early",
		Edits: []Edit{{
			"internal/standing/clock.go", "	return c.database.Add(time.Since(c.received))",
			"	return time.Now().Add(time.Second)",
		}},
		Shown: calm("S9", 1, 2, 3),
	},
	{
		Name: "the wake time by the application's clock", Breaks: "a sleep never ends early",
		Edits: []Edit{{"internal/replay/sleep.go", "	r.Wake = d\n", "	r.Wake = max(0, " +
			"time.Until(time.Now().Add(d-time.Second)))\n"}},
		Shown: calm("S9", 1, 2, 3),
	},
	{
		Name: "a backoff begins two attempts later", Breaks: "a retry follows within its policy",
		Edits: []Edit{{"retry.go", "float64(max(attempt, 1)-1)", "float64(max(attempt, 1)+1)"}},
		Shown: calm("S9", 1, 2, 3),
	},
	{
		Name: "the schedule's cursor in a second transaction", Breaks: "each tick of a schedule has its run",
		Edits: []Edit{
			{
				"store/schedules.go", "			decided = len(due)\n			fired, err = s.fire(ctx, tx, " +
					"decide(now, due))\n			return err\n",
				"			decided = len(due)\n			firings = decide(now, due)\n			return " +
					"s.advance(ctx, tx, firings)\n",
			},
			{"store/schedules.go", "		fired, decided = nil, 0\n		return pg.Transact(ctx, s.pool, " +
				"pg.Brief, " +
				"func(tx pgx.Tx) error {", "		fired, decided = nil, 0\n		var firings " +
				"[]*Firing\n		err := pg.Transact(ctx, s.pool, pg.Brief, func(tx pgx.Tx) error {"},
			{
				"store/schedules.go", "		})\n	})\n	return fired, decided, pg.Wrap(\"fire schedules\", " +
					"err)\n}\n",
				"		})\n		if err != nil || decided == 0 {\n			return " +
					"err\n		}\n		return pg.Transact(ctx, s.pool, pg.Brief, func(tx pgx.Tx) error " +
					"{\n			fired, err = s.fire(ctx, tx, firings)\n			return " +
					"err\n		})\n	})\n	return fired, decided, pg.Wrap(\"fire schedules\", " +
					"err)\n}\n\nfunc (s " +
					"Schedules) advance(ctx context.Context, tx pgx.Tx, firings []*Firing) error {\n	return " +
					"pg.Ask(ctx, " +
					"tx, advanceTemplates, advanceColumns.args(s.namespace, firings), nil)\n}\n",
			},
		},
		Shown: rounds("S8", "F11 lost request of a schedule", 1, 2, 3),
	},
}

// orderMutants are mistakes about order and about writes that belong together.
var orderMutants = []Mutant{
	{
		Name: "flushes lock in any order", Breaks: "our transactions never deadlock",
		Edits: []Edit{
			{"store/locks.go", "const lockRuns = `\nSELECT r.run_id\nFROM (SELECT u.run_id FROM unnest($2::uuid[]) " +
				"AS u (run_id) ORDER BY 1) u", "const lockRuns = `\nSELECT r.run_id\nFROM (SELECT u.run_id FROM " +
				"unnest($2::uuid[]) AS u (run_id)) u"},
			{
				"store/flush.go", "	slices.SortFunc(ids, compareIDs)\n	return slices.Compact(ids)\n",
				"	return ids\n",
			},
		},
		Shown: rounds("no transaction runs into a deadlock", "F19", 1, 2, 3),
	},
	{
		Name: "compensations run in the order of registration", Breaks: "the last registered compensation runs first",
		Edits: []Edit{{"store/compensations.go", "ORDER BY s.position DESC`", "ORDER BY s.position`"}},
		Shown: calm("compensations|a run is compensated from its last registration to its first", 1, 2, 3),
	},
	{
		Name: "compensations do not wait for each other", Breaks: "the last registered compensation runs first",
		Edits: []Edit{{"store/compensations.go", "		case r.Status == Running:\n			return await(1, " +
			"on)\n		}\n	}\n", "		case r.Status == " +
			"Running:\n			under++\n		}\n	}\n	if under > 0 {\n		return await(under, " +
			"waits.Wait{Kind: \"compensations\"})\n	}\n"}, {"store/compensations.go", "	var failed []error\n" +
			"	for _, r := range all {", "	var failed []error\n	under := int64(0)\n" +
			"	for _, r := range all {"}},
		Shown: calm("compensations|a run is compensated from its last registration to its first", 1, 2, 3),
	},
	{
		Name: "the end of a run drops its deferred records", Breaks: "a message is read once, and that is recorded",
		Edits: []Edit{{
			"internal/replay/outbox.go", "	if len(o.deferred) == 0 {\n		return nil\n	}\n",
			"	if len(o.deferred) == 0 || w.finish != nil {\n		o.deferred = nil\n		return nil\n	}\n",
		}},
		Shown: calm("messages|S7|S9", 1, 2, 3),
	},
	{
		Name:   "the read of a message is recorded without its payload",
		Breaks: "a replay sees what the first execution saw",
		Edits: []Edit{
			{
				"internal/replay/signals.go", "	r.Output, r.Input, r.EndedAt, r.Read = g.Payload, ",
				"	r.Input, r.EndedAt, r.Read = ",
			},
			{
				"internal/replay/signals.go", "	done.FinishedAt = r.EndedAt\n	return &done, false\n",
				"	done.FinishedAt, done.Output = r.EndedAt, g.Payload\n	return &done, false\n",
			},
		},
		Shown: calm("messages|S3|S7|S15", 1, 2, 3),
	},
	{
		Name: "a finish ignores a pending cancel", Breaks: "a cancel wins over what was under way",
		Edits: []Edit{{"store/finish.go", "AND r.lease = u.lease AND r.status = 'RUNNING' AND r.cancel_requested_at " +
			"IS NULL", "AND r.lease = u.lease AND r.status = 'RUNNING'"}, {
			"store/finish.go",
			"			AND (u.quarantined OR u.status = 'CANCELLED' OR k.cancel_requested_at IS NULL)\n", "",
		}},
		Shown: rounds("S10", "F2 cancel the runs", 1, 2, 3),
	},
}

// wakeMutants are mistakes by which something waits for ever.
var wakeMutants = []Mutant{
	{
		Name: "claims without polling", Breaks: "a due run is picked up within the poll interval, if every " +
			"notification is lost",
		Edits: []Edit{{
			"internal/claims/policy_plan.go", "LowFirst: q.lowFirst(), Ahead: p.cfg.PollInterval,",
			"LowFirst: q.lowFirst(), Ahead: time.Hour,",
		}},
		Shown: calm("L1|L3|L4", 1, 2, 3).with("-deaf -customers 3 -workers 2"),
	},
	{
		Name: "a suspension overlooks what arrived meanwhile", Breaks: "a message is never lost",
		Edits: []Edit{{"store/suspend.go", "		u.status = 'SLEEPING' AND r.wakeups >= u.awaited OR " +
			"r.cancel_requested_at IS NOT NULL AND NOT u.not_before AS due", "		u.status = 'SLEEPING' AND " +
			"r.wakeups < 0 OR r.cancel_requested_at IS NOT NULL AND NOT u.not_before AS due"}},
		Shown: calm("L1|L4", 1, 2, 3),
	},
	{
		Name: "a consumer is clean although a publisher has not committed", Breaks: "each event is consumed",
		Edits: []Edit{{
			"store/consumerlooks.go", "		SELECT $4::bigint - coalesce(max((",
			"		SELECT $4::bigint - 0 * coalesce(max((",
		}},
		Shown: Shown{Test: "-run Consumer ./store"},
	},
	{
		Name: "a consumer's run marks what it has not seen", Breaks: "each event is consumed",
		Edits: []Edit{{"store/consumption.go", "SET looked_at = done.looked, `", "SET looked_at = (SELECT " +
			"max(e.position) FROM kagzi.events e WHERE e.topic = done.topic AND e.namespace_id = $1 AND " +
			"done.looked >= 0), `"}},
		Shown: calm("consumers", 1, 2, 3).with("-customers 5 -workers 2"),
	},
	{
		Name: "the text of a panic is cut, not cleaned", Breaks: "recording a failure cannot fail",
		Edits: []Edit{{
			"internal/failure/panic.go", "		return text.Sanitize(text.Sanitize(message, " +
				"text.MaxError/2)+\"\\n\\n\"+string(stack), text.MaxError)\n",
			"		return message[:min(len(message), text.MaxError/2)] + \"\\n\\n\" + " +
				"string(stack[:min(len(stack), text.MaxError/2)])\n",
		}},
		Shown: calm("S3|S7|L1", 1, 2, 3),
	},
	{
		Name: "retention does not ask for the parent", Breaks: "no run is deleted that somebody waits for",
		Edits: []Edit{{"store/retention.go", "			AND CASE WHEN q.parent_run_id IS NULL THEN true ELSE NOT " +
			"EXISTS (\n				SELECT FROM kagzi.workflow_runs p WHERE p.run_id = q.parent_run_id AND " +
			"p.namespace_id = $1) END\n", ""}},
		Shown: Shown{Test: "-run Retention|Prune ./store"},
	},
}

// retryMutants are mistakes after a lost answer.
var retryMutants = []Mutant{
	{
		Name:   "a claim without an answer counts as one that took nothing",
		Breaks: "a run under a lease that nobody holds is taken over",
		Edits: []Edit{{"internal/worker/claims_lost.go", "	if pg.Unsent(err) || pg.Answered(err) || " +
			"pg.Repeatable(err) {", "	if pg.Unsent(err) || pg.Answered(err) || pg.Repeatable(err) || " +
			"pg.Unavailable(err) {"}},
		Shown: rounds("L1|L2|L4", "F11 lost answer to a claim", 5, 1, 7), // with leases of five minutes
	},
	{
		Name:   "a transaction is repeated if its connection is lost",
		Breaks: "a write whose outcome is unknown is not repeated blindly",
		Edits: []Edit{
			{
				"internal/pg/tx.go", "	return OnConn(ctx, db, func(conn *pgx.Conn) error " +
					"{\n		whole.Queue(beginTx)\n",
				"	send := func(conn *pgx.Conn) error {\n		whole, reads := &pgx.Batch{}, " +
					"reads\n		whole.Queue(beginTx)\n",
			},
			{
				"internal/pg/tx.go", "		if err = SendAll(ctx, conn, whole, reads); err != nil " +
					"{\n			abort(conn)\n		}\n		return err\n	})\n}",
				"		if err = SendAll(ctx, conn, whole, reads); err != nil " +
					"{\n			abort(conn)\n		}\n		return err\n	}\n	err := OnConn(ctx, db, " +
					"send)\n	if Classify(err) == ClassAway {\n		err = OnConn(ctx, db, " +
					"send)\n	}\n	return err\n}",
			},
		},
		Shown: Shown{Test: "-run Lost ./store"},
	},
}

package main

// longMutants are mistakes about what long runs need: requests, epochs and values.
var longMutants = []Mutant{
	{
		Name: "an ended run has no answers", Breaks: "asked again with its ID, a run gives the first answer",
		Edits: []Edit{{
			"store/requests.go", "case replied:\n",
			"case replied && (over == Running || over == Pending || over == Sleeping):\n",
		}},
		Shown: calm("messages", 1, 2, 3),
	},
	{
		Name: "every request gets the first answer", Breaks: "each request gets its own answer",
		Edits: []Edit{{
			"store/requests.go", "WHERE t.run_id = u.run_id AND t.sequence = g.sequence AND t.step_kind = 'REPLY'",
			"WHERE t.run_id = u.run_id AND t.step_kind = 'REPLY'",
		}},
		Shown: calm("messages", 1, 2, 3),
	},
	{
		Name:   "an epoch forgets the requests that it has not answered",
		Breaks: "no request is lost that was acknowledged",
		Edits: []Edit{{
			"store/continue.go", "SET consumed_by = NULL, consumed_at = NULL", "SET consumed_by = g.consumed_by",
		}},
		Shown: calm("S3|L1|messages|message", 1, 2, 3),
	},
	{
		Name: "each epoch counts its records from one", Breaks: "positions grow from epoch to epoch",
		Edits: []Edit{{
			"store/continue.go", "return int64(epoch) << 32", "return int64(epoch) * 0",
		}},
		Shown: calm("messages|position|epoch", 1, 2, 3),
	},
	{
		Name: "each attempt of a step asks anew", Breaks: "a step asks once, whatever the number of its attempts",
		Edits: []Edit{{
			"internal/core/sendids.go", "by.StepKey(), sent, by.Count(sent)", "uuid.NewString(), sent, by.Count(sent)",
		}},
		Shown: Shown{Test: "-run TestAsk$/FromAStep ./test/requests"},
	},
	{
		Name: "another request with the ID gets the first answer", Breaks: "an ID of another request is refused",
		Edits: []Edit{{
			"store/messages.go", "AND u.payload_hash IS NOT NULL AND s.payload_hash IS DISTINCT FROM u.payload_hash",
			"AND u.payload_hash IS NOT NULL AND s.payload_hash IS NULL",
		}},
		Shown: Shown{Test: "-run TestAsk$/SameAnswerForEver ./test/requests"},
	},
	{
		Name: "an epoch has the failed attempts of the one before", Breaks: "an epoch begins afresh",
		Edits: []Edit{{
			"store/continue.go", "attempts = 0, recoveries = 0, recoveries_since = NULL",
			"recoveries = 0, recoveries_since = NULL",
		}},
		Shown: Shown{Test: "-run TestANewEpochBeginsAfresh ./test/epochs"},
	},
	{
		Name: "the records of all epochs stay", Breaks: "a run that continues without end leaves few rows",
		Edits: []Edit{{
			"store/continue.go", `s.step_id >= E'\x01' || (u.epoch - 1)::text || '/'`,
			`s.step_id >= E'\x01' || u.epoch::text || '/'`,
		}},
		Shown: Shown{Test: "-run TestManyEpochsLeaveFewRows ./test/epochs"},
	},
	{
		Name: "a replay sets the values again", Breaks: "replays set nothing again",
		Edits: []Edit{{
			"internal/replay/branch_setting.go", "	if c.calls <= c.written {", "	if c.calls <= 0 {",
		}},
		Shown: Shown{Test: "-run TestReplaysSetNothing ./test/values"},
	},
	{
		Name: "a branch's value hides the newer one of another", Breaks: "the last change of a value counts",
		Edits: []Edit{{
			"store/values.go", "	ORDER BY s.position DESC\n	LIMIT 1\n) v",
			"	ORDER BY s.step_id\n	LIMIT 1\n) v",
		}},
		Shown: Shown{Test: "-run TestBranchesSetAValue ./test/values"},
	},
	{
		Name: "an epoch forgets the values", Breaks: "a run has the value that it has set last, in whatever epoch",
		Edits: []Edit{{
			"store/continue.go", "WHERE s.place > 1 AND ` + thatRecord", "WHERE s.place > 0 AND ` + thatRecord",
		}},
		Shown: calm("S7", 1, 2, 3),
	},
}

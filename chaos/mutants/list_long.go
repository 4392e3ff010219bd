package main

// longMutants are mistakes about what long runs need: requests and epochs.
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
}

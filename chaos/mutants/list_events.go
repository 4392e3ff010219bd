package main

// eventMutants are mistakes about runs that wait for events.
var eventMutants = []Mutant{
	{
		Name: "an event for which one run waits is not noted", Breaks: "a run that waits for an event gets it",
		Edits: []Edit{{"store/eventwaits.go", "	) x\n) > 0\nRETURNING", "	) x\n) > 1\nRETURNING"}},
		Shown: rounds("L6", terminate, 1, 2, 3),
	},
	{
		Name:   "a worker does not look again behind an open publisher",
		Breaks: "a run that waits for an event gets it, in whatever order the transactions commit",
		Edits:  []Edit{{"topic/wait.go", "return w.open > 0, err", "return w.open < 0, err"}},
		Shown:  Shown{Test: "-run TestEventBehindAnOpenPublisher ./test/events"},
	},
	{
		Name:   "a coordinator forgets an event although a run is locked",
		Breaks: "each run that waits for an event gets it",
		Edits: []Edit{{
			"internal/housekeeping/events.go", "		if err == nil && !t.held {", "		if err == nil {",
		}},
		Shown: Shown{Test: "-run TestLockedRunHoldsUpNoOther$ ./test/events"},
	},
	{
		Name: "an event is late if its message is", Breaks: "an event that was published in time is read",
		Edits: []Edit{{
			"internal/replay/signals.go", "at := store.EventOf(message.Headers, nil).PublishedAt",
			"at := message.ReceivedAt",
		}},
		Shown: Shown{Test: "-run TestEventInTime ./test/events"},
	},
	{
		Name:   "a wait whose time is over asks no more",
		Breaks: "an event that was published in time is read, also if no coordinator has told the run",
		Edits: []Edit{{
			"internal/replay/signals.go", "	if w.spec.Kind == store.KindEvent { // the coordinator",
			"	if w.spec.Kind == store.KindAsk { // the coordinator",
		}},
		Shown: Shown{Test: "-run TestEventInTimeOfARunUnderWay ./test/events"},
	},
	{
		Name: "an event that is published again replaces the first", Breaks: "a topic has the first event with an ID",
		Edits: []Edit{
			{"store/publishing.go", "WHERE CASE WHEN events.named THEN NOT EXISTS (", "WHERE NOT EXISTS ("},
			{
				"store/publishing.go", "AND e.namespace_id = $1\n	) ELSE true END",
				"AND e.namespace_id = $1 AND e.part <> events.part\n	)",
			},
			{
				"store/publishing.go", "ON CONFLICT DO NOTHING\n	RETURNING topic",
				"ON CONFLICT (topic, event_id, namespace_id, part) DO UPDATE SET payload = excluded.payload\n" +
					"	RETURNING topic",
			},
		},
		Shown: calm("S7|S17", 1, 2, 3),
	},
}

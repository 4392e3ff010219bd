package main

import "time"

// moves are rounds in which namespaces move between two databases.
func moves(by string, seeds ...uint64) Shown {
	return Shown{
		Seeds: seeds, Duration: 40 * time.Second, Faults: "F28 |F1 kill a worker at random", By: by,
		Flags: "-server databases -workers 3 -customers 20",
	}
}

// moveMutants are mistakes about namespaces that move.
var moveMutants = []Mutant{
	{
		Name: "the fence leaves out a table", Breaks: "what is acknowledged during a move is in one of the databases",
		Edits: []Edit{{
			"store/move/fence.go", "		if have[t.name] == on {",
			"		if have[t.name] == on || t.name == \"events\" {",
		}},
		Shown: moves("report this as a bug|left rows behind|consumers|S17", 1, 2),
	},
	{
		Name: "rows are deleted although a worker holds their runs", Breaks: "a step is not executed again",
		Edits: []Edit{{"store/move/move.go", "		if !held {", "		if held || !held {"}},
		Shown: Shown{Test: "-run TestMoveBesideAWorker$ ./namespaces"},
	},
	{
		Name: "a move is cancelled although its rows have arrived", Breaks: "a namespace is in one database",
		Edits: []Edit{{
			"namespaces/move.go", "	if arrived, err := s.Arrived(ctx); err != nil || arrived {",
			"	if _, err := s.Arrived(ctx); err != nil {",
		}},
		Shown: moves("neither be ended|other one|S13|L3", 2, 1),
	},
}

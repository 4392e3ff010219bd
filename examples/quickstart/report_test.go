package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
)

// The report must find each broken guarantee.
func TestJudgeStep(t *testing.T) {
	t.Parallel()
	ship := step{"run", "ship", 1}
	began := time.Now()
	by := func(note string, at int) execution {
		worker, _, _ := strings.Cut(note, "/")
		return execution{note: note, worker: worker, at: began.Add(time.Duration(at)), step: ship}
	}
	record := func(note string) kagzi.StepAttempt {
		return kagzi.StepAttempt{Step: "ship", Attempt: 1, Output: json.RawMessage(`"` + note + `"`)}
	}
	failure := kagzi.StepAttempt{Step: "ship", Attempt: 1, Error: errGateway.Error() + ", said to worker-1/1"}
	for _, test := range []struct {
		name        string
		record      kagzi.StepAttempt
		executions  []execution
		kept        bool
		interrupted int
	}{
		{"Once", record("worker-2/1"), []execution{by("worker-2/1", 1)}, true, 0},
		{"FailedOnce", failure, []execution{by("worker-1/1", 1)}, true, 0},
		{"CutShort", record("worker-2/1"), []execution{by("worker-1/1", 1), by("worker-2/1", 2)}, true, 1},
		{"GivenUpAndMadeAgain", record("worker-2/2"), []execution{by("worker-2/1", 1), by("worker-2/2", 2)}, true, 0},
		{
			"AgainAfterTheVictimsRecord", record("worker-1/1"),
			[]execution{by("worker-1/1", 1), by("worker-2/1", 2)},
			false, 0,
		},
		{
			"AgainAfterTheSurvivorsRecord", record("worker-2/1"),
			[]execution{by("worker-2/1", 1), by("worker-2/2", 2)},
			false, 0,
		},
		{"AgainAfterAFailure", failure, []execution{by("worker-1/1", 1), by("worker-2/1", 2)}, false, 0},
		{"RecordFromNowhere", record("worker-2/2"), []execution{by("worker-2/1", 1)}, false, 0},
		{"RecordWithoutExecution", record("worker-2/1"), nil, false, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			v := &tally{}
			(&show{victim: "worker-1"}).checkStep(v, test.record, test.executions)
			if kept := len(v.broken) == 0; kept != test.kept || v.interrupted != test.interrupted {
				t.Errorf("broken: %q, interrupted: %d; want kept %t, interrupted %d", v.broken, v.interrupted,
					test.kept, test.interrupted)
			}
		})
	}
}

func TestExecutionReadsBack(t *testing.T) {
	t.Parallel()
	want := execution{
		note: "worker-1/17", worker: "worker-1", at: time.Unix(12, 34),
		step: step{"run", "prepare/payment/authorize", 2},
	}
	got, err := parseExecution(strings.TrimSuffix(want.line(), "\n"))
	if err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

package kagziotel

import (
	"encoding/json"
	"fmt"
	"strings"
)

// manual is where the pages of docs are for those who read an alert.
const manual = "https://github.com/kagzi/kagzi/blob/main/docs/"

// A rule is one that alerts. Its text says what to do, and page where to read more.
type rule struct {
	name, expr, lasts, severity, summary, says, page string
}

// Severities: an operator looks at once, or on the next day.
const (
	critical = "critical"
	warning  = "warning"
)

// rules returns the rules. What they count is counted for each job, as Prometheus calls a service.
func rules() []rule {
	var always source
	return append([]rule{
		{
			"KagziNoWorkers", "absent(" + always.series(workerSlots, "") + ")", "5m", critical,
			"No process reports a Kagzi worker",
			"For 5 minutes no process has reported slots of a worker: no worker runs, or its metrics do not arrive. " +
				"Runs do not go on, and without a coordinator schedules do not fire. Start workers. If they run, " +
				"look for kagziotel's Observe in their program, and for errors of its exporter.",
			"waiting.md#1-does-any-worker-serve-it",
		},
		{
			"KagziRunsWaitTooLong",
			always.most(queueDueAge, byJob, byQueue, byWorkflow) + " > 300", "5m", warning,
			"Runs of {{ $labels." + byWorkflow + " }} in the queue {{ $labels." + byQueue + " }} have been due for " +
				"{{ $value | humanizeDuration }}",
			"Their time has come, and no worker executes them: none serves the queue and the workflow, all are full, " +
				"or the runs wait for a slot of their key. Ask `kagzi health`. A backlog that you expect is no fault.",
			"waiting.md#1-does-any-worker-serve-it",
		},
		{
			"KagziWorkersFull",
			over("sum", []string{byJob}) + " (" + always.with(is(attrSlot, "free")).series(workerSlots, "") +
				") == 0 and on (" + byJob + ") " + always.most(queueDueAge, byJob) + " > 60", "15m", warning,
			"The workers of {{ $labels." + byJob + " }} have had no free slot for 15 minutes, and runs wait",
			"Start more workers, or set a higher MaxConcurrent. First look at what holds the slots: code that hangs " +
				"would fill new workers, too.",
			"waiting.md#2-has-a-worker-room-for-it",
		},
		{
			"KagziPaused",
			always.most(queuePaused, byJob, byQueue, byWorkflow) + " > 0", "12h", warning,
			"Runs of {{ $labels." + byWorkflow + " }} in the queue {{ $labels." + byQueue + " }} have been paused " +
				"for 12 hours",
			"A pause may have been forgotten: `kagzi health` names each with its reason. End it, or silence this " +
				"alert.",
			"pauses.md#rules",
		},
	}, append(failureRules(), databaseRules()...)...)
}

func failureRules() []rule {
	hour, quarter := source{window: "1h"}, source{window: "15m"}
	failedRuns := hour.with(is(attrStatus, "FAILED")).grown("increase", runDuration, "_count", byJob, byWorkflow)
	failedSteps := quarter.with(is(attrOutcome, failed)).
		grown("increase", stepDuration, "_count", byJob, byWorkflow, byStep)
	// The first lost run of a process makes a series, whose increase nothing shows.
	lostRuns := quarter.with(is(attrOutcome, lost))
	series := lostRuns.series(executionDuration, "_count")
	return []rule{
		{
			"KagziRunsFail",
			failedRuns + " / " + hour.grown("increase", runDuration, "_count", byJob, byWorkflow) + " > 0.1 and " +
				failedRuns + " >= 10", "5m", warning,
			"{{ $value | humanizePercentage }} of the runs of {{ $labels." + byWorkflow + " }} failed within an hour",
			"At least ten runs failed for good. `kagzi health` names the most frequent kinds. Remove the cause, and " +
				"then resume the runs.",
			"repairing.md",
		},
		{
			"KagziStepsFail",
			failedSteps + " / " + quarter.grown("increase", stepDuration, "_count", byJob, byWorkflow, byStep) +
				" > 0.5 and " + failedSteps + " >= 10", "5m", warning,
			"{{ $value | humanizePercentage }} of the attempts of the step {{ $labels." + byStep + " }} of " +
				"{{ $labels." + byWorkflow + " }} fail",
			"More than half of at least ten attempts failed within 15 minutes. What the step calls may be down: its " +
				"runs go on by themselves once it works, as long as their retries last. Consider a pause until then.",
			"steps.md#retries",
		},
		{
			"KagziStartsFail",
			quarter.with(isNot(attrErrorType, "")).grown("increase", runStarts, "", byJob, byWorkflow, byKind) +
				" >= 10", "5m", warning,
			"Starts of {{ $labels." + byWorkflow + " }} fail: {{ $labels." + byKind + " }}",
			"Ten or more calls within 15 minutes returned an error instead of a run. Of the kinds, `database` and " +
				"`network` mean that the database does not answer, and `bad_request` that the caller is refused, " +
				"for example because its ID is in use, or its key is full.",
			"steps.md#kinds",
		},
		{
			"KagziLeasesLost",
			lostRuns.grown("increase", executionDuration, "_count", byJob) + " > 0 or " +
				over("sum", []string{byJob}) + " (" + series + " unless " + series + " offset " + quarter.window +
				") > 0", "5m", warning,
			"Workers of {{ $labels." + byJob + " }} lose their runs to others",
			"A worker that lives was taken for dead: it could not reach the database for too long, or its process " +
				"stood still. Its steps may execute twice. Look for pauses of the process, a processor that is used " +
				"up, and failovers. Consider a longer StaleAfter.",
			"crashes.md#how-soon-a-crash-is-noticed",
		},
	}
}

func databaseRules() []rule {
	five := source{window: "5m"}
	return []rule{
		{
			"KagziCannotStore",
			five.with(isNot(attrErrorType, "")).rate(flushDuration, byJob, byKind) + " > 0", "10m", critical,
			"Workers of {{ $labels." + byJob + " }} cannot store what runs record: {{ $labels." + byKind + " }}",
			"For 10 minutes, transactions of workers have failed. Runs do not go on, and steps may execute again. " +
				"`kagzi health` says whether the database answers, and why it refuses statements: a full disk, a " +
				"lock, missing rights.",
			"health.md#health",
		},
		{
			"KagziDatabaseSlow",
			five.quantile(0.99, flushDuration, byJob) + " > 1", "10m", warning,
			"A transaction in a hundred of {{ $labels." + byJob + " }} takes {{ $value | humanizeDuration }}",
			"The database stores slowly what runs record. `kagzi doctor` examines it: its disk, locks, autovacuum, " +
				"and transactions that stay open.",
			"performance.md#what-slows-it-down",
		},
	}
}

// ruleFile returns the rules as a file for Prometheus.
func ruleFile() string {
	var b strings.Builder
	b.WriteString("# Alerts for Kagzi: docs/monitoring.md explains them. Generated: change otel/rules_test.go, then\n" +
		"# go test -run TestGeneratedFiles -update\n" +
		"groups:\n  - name: kagzi\n    rules:\n")
	for _, r := range rules() {
		fmt.Fprintf(&b, "      - alert: %s\n        expr: %s\n        for: %s\n        labels:\n"+
			"          severity: %s\n        annotations:\n          summary: %s\n          description: %s\n"+
			"          runbook_url: %s\n",
			r.name, folded(r.expr), r.lasts, r.severity, quoted(r.summary), quoted(r.says), manual+r.page)
	}
	return b.String()
}

// folded returns a text as a block of YAML, with a line for each part that a word or a fraction joins.
func folded(text string) string {
	return ">-\n          " + strings.NewReplacer(" and ", "\n          and ", " or ", "\n          or ",
		" / ", "\n          / ").Replace(text)
}

// quoted returns a text as YAML, which has the strings of JSON.
func quoted(text string) string {
	out, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(out)
}

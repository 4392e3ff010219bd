package kagziotel

// Files are the generated files by their names.
var Files = map[string]func() string{"grafana.json": board, "prometheus-rules.yml": ruleFile}

// MetricNames are the names of all metrics in Prometheus, by their names in OpenTelemetry.
func MetricNames() map[string][]string {
	all := map[string][]string{}
	for _, i := range []instrument{
		runStarts, runDuration, executionDelay, executionDuration, stepDuration, signalsSent, flushDuration,
		flushWrites, workerSlots, queueDue, queueDueAge, queueSleeping, queuePaused,
	} {
		all[i.name] = prometheusNames(i)
	}
	return all
}

// Label is the name of an attribute in Prometheus.
var Label = prometheusLabel

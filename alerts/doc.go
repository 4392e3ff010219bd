// Package alerts says when something is wrong with the runs of a namespace, and when it is well again: it is for
// programs whose operators want a message, and do not look at a dashboard.
//
//	err := alerts.Run(ctx, client, alerts.Config{ // blocks until ctx ends
//		Notifiers: map[string]alerts.Notifier{
//			"log":   alerts.Slog{Logger: logger},
//			"slack": alerts.Slack{URL: os.Getenv("SLACK_WEBHOOK")},
//			"pager": alerts.Only(health.Unhealthy, alerts.PagerDuty{RoutingKey: os.Getenv("PAGERDUTY_KEY")}),
//		},
//		Runs: true,
//	})
//
// [Run] looks at Health of an admin.Client, and with Config.Runs at topic.Runs. Any number of processes may call it:
// but for an outage of the database, an alert opens once and closes once, whichever process sends it, and whichever
// dies in between.
//
// # How it works
//
//	the run "watch"                                   any process
//	 │ step "look": Health, events of topic.Runs       │
//	 │ step "send": a run for each message ───────────►│ Notify, again and again until it succeeds
//	 └ sleep, Continue with what is open
//
// Which alerts are open is the input of a run that continues after each look, so it is as durable as any other run.
// Each message is a run, too: one notifier that is away holds up no other, and gets its messages about one alert in
// order when it is back. They are runs of the namespace "NAME.alerts", where NAME is the namespace that is watched. So
// these runs, and the worker that Run starts for them, change nothing in the one that is watched.
//
// While the database is away, or refuses writes, no run goes on. So each process also looks by itself whether the
// client can work, and sends these alerts by itself.
//
// A message is sent twice if the process dies after it was sent and before that is recorded. Alert.Key is then the
// same. PagerDuty drops the second one.
package alerts

package deeds

import "strings"

// terms are calls of the library that its texts advise, and what stands for them: a command of the command line, and
// what a reader of the dashboard knows. "-" lets the text of the library stand there.
var terms = [][3]string{
	{"call kagzi.Migrate", "run kagzi migrate up", "run kagzi migrate up"},
	{"kagzi.Migrate", "kagzi migrate up", "kagzi migrate up"},
	{"the doctor has the GRANT statements", "kagzi doctor has the GRANT statements", "-"},
	{"Client.Cancel", "kagzi runs cancel", "cancel"},
	{"Client.Get", "kagzi runs get", "the run's page"},
	{"admin.Client.Health", "kagzi health", "the overview"},
	{"Client.List", "kagzi runs list", "the list of runs"},
	{"Client.Steps", "kagzi runs steps", "the run's page"},
	{"admin.Client.Stranded", "kagzi stuck", "the page Stranded"},
	{"admin.Consumers.List", "kagzi consumers", "the page Topics"},
	{"admin.Keys.Set", "kagzi keys set", "the page Limits"},
	{"admin.Limits.Set", "kagzi limits set", "the page Limits"},
	{"admin.Messages.Drop", "kagzi runs drop-message", "Drop"},
	{"admin.Messages.List", "kagzi runs messages", "the run's messages"},
	{"admin.Messages.Redeliver", "kagzi runs redeliver-message", "Redeliver"},
	{"admin.Pauses.End", "kagzi unpause", "unpause"},
	{"admin.Pauses.List", "kagzi pauses", "the page Limits"},
	{"admin.Queues.Set", "kagzi queues set", "the page Limits"},
	{"admin.Runs.CancelAll", "kagzi runs cancel", "cancel"},
	{"admin.Runs.Fork", "kagzi runs fork", "fork"},
	{"admin.Runs.Log", "kagzi runs log", "the run's log"},
	{"admin.Runs.Pause", "kagzi runs pause", "pause"},
	{"admin.Runs.Resolve", "kagzi runs resolve", "Resolve"},
	{"admin.Runs.RestartAll", "kagzi runs restart", "restart"},
	{"admin.Runs.Restart", "kagzi runs restart", "restart"},
	{"admin.Runs.ResumeAll", "kagzi runs resume", "resume"},
	{"admin.Runs.Resume", "kagzi runs resume", "resume"},
	{"admin.Runs.Terminate", "kagzi runs terminate", "terminate"},
	{"admin.Runs.UnpauseAll", "kagzi runs unpause", "unpause"},
	{"admin.Runs.Unpause", "kagzi runs unpause", "unpause"},
	{"admin.Schedules.Backfill", "kagzi schedules backfill", "backfill"},
	{"admin.Schedules.Resume", "kagzi schedules resume", "resume"},
	{"admin.Workers.DrainQueue", "kagzi drain", "drain"},
	{"admin.Workers.Drain", "kagzi workers drain", "drain"},
	{"admin.Workers.ForceOffline", "kagzi workers force-offline", "force offline"},
	{"admin.Workers.Log", "kagzi workers log", "the worker's log"},
	{": Restart starts another", ": kagzi runs restart starts another", "-"},
	{": Restart it, or Resume it if", ": kagzi runs restart starts another, kagzi runs resume continues it if", "-"},
	{": Restart it", ": kagzi runs restart starts another", "-"},
	{": Start or Restart another", ": kagzi runs restart starts another", "-"},
	{": Fork from the wait", ": kagzi runs fork from the wait", "-"},
	{"leave At and Delay out", "leave --set-at and --set-delay out", "-"},
	{": cancel it first", ": kagzi runs cancel ends it", "-"},
	{": cancel that one first", ": end it first with kagzi runs cancel", "-"},
	{"the pool's connection string", "the database URL", "-"},
	{"kagzi: ", "-", ""},
}

// inTerms are the terms of commands, and of the dashboard.
var inTerms = [2]*strings.Replacer{replacer(1), replacer(2)}

func replacer(of int) *strings.Replacer {
	var pairs []string
	for _, t := range terms {
		if t[of] != "-" {
			pairs = append(pairs, t[0], t[of])
		}
	}
	return strings.NewReplacer(pairs...)
}

// InCommands returns a text of the library with commands in place of calls. Calls that have no command stay.
func InCommands(s string) string { return inTerms[0].Replace(s) }

// InPages is InCommands with what a reader of the dashboard knows.
func InPages(s string) string { return inTerms[1].Replace(s) }

// Package words has how kagzi says things: errors and advice of the library become sentences about commands.
package words

import "strings"

// terms are calls of the library that its texts advise, and the commands that make them.
var terms = strings.NewReplacer(
	"call kagzi.Migrate", "run kagzi migrate up",
	"kagzi.Migrate", "kagzi migrate up",
	"the doctor has the GRANT statements", "kagzi doctor has the GRANT statements",
	"admin.Client.BackfillSchedule", "kagzi schedules backfill",
	"admin.Client.CancelAll", "kagzi runs cancel",
	"Client.Cancel", "kagzi runs cancel",
	"admin.Client.Consumers", "kagzi consumers",
	"admin.Client.DrainQueue", "kagzi drain",
	"admin.Client.Drain", "kagzi workers drain",
	"admin.Client.DropMessage", "kagzi runs drop-message",
	"admin.Client.ForceOffline", "kagzi workers force-offline",
	"admin.Client.Fork", "kagzi runs fork",
	"Client.Get", "kagzi runs get",
	"admin.Client.Health", "kagzi health",
	"Client.List", "kagzi runs list",
	"admin.Client.Messages", "kagzi runs messages",
	"admin.Client.PauseRun", "kagzi runs pause",
	"admin.Client.Pauses", "kagzi pauses",
	"admin.Client.RedeliverMessage", "kagzi runs redeliver-message",
	"admin.Client.RestartAll", "kagzi runs restart",
	"admin.Client.Restart", "kagzi runs restart",
	"admin.Client.ResumeAll", "kagzi runs resume",
	"admin.Client.ResumeSchedule", "kagzi schedules resume",
	"admin.Client.Resume", "kagzi runs resume",
	"admin.Client.RunLog", "kagzi runs log",
	"admin.Client.SetKey", "kagzi keys set",
	"admin.Client.SetLimit", "kagzi limits set",
	"admin.Client.SetQueue", "kagzi queues set",
	"Client.Steps", "kagzi runs steps",
	"admin.Client.Stranded", "kagzi stuck",
	"admin.Client.Terminate", "kagzi runs terminate",
	"admin.Client.UnpauseRuns", "kagzi runs unpause",
	"admin.Client.UnpauseRun", "kagzi runs unpause",
	"admin.Client.Unpause", "kagzi unpause",
	": Restart starts another", ": kagzi runs restart starts another",
	": Restart it, or Resume it if", ": kagzi runs restart starts another, kagzi runs resume continues it if",
	": Restart it", ": kagzi runs restart starts another",
	": Start or Restart another", ": kagzi runs restart starts another",
	": Fork from the wait", ": kagzi runs fork from the wait",
	"leave At and Delay out", "leave --set-at and --set-delay out",
	": cancel it first", ": kagzi runs cancel ends it",
	": cancel that one first", ": end it first with kagzi runs cancel",
	"admin.Client.WorkerLog", "kagzi workers log",
	"the pool's connection string", "the database URL",
)

// InTerms returns a text of the library with commands in place of calls. Calls that have no command stay.
func InTerms(s string) string { return terms.Replace(s) }

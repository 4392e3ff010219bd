// Package words has how kagzi says things: errors and advice of the library become sentences about commands.
package words

import "strings"

// terms are calls of the library that its texts advise, and the commands that make them.
var terms = strings.NewReplacer(
	"call kagzi.Migrate", "run kagzi migrate up",
	"kagzi.Migrate", "kagzi migrate up",
	"the doctor has the GRANT statements", "kagzi doctor has the GRANT statements",
	"Client.BackfillSchedule", "kagzi schedules backfill",
	"Client.CancelAll", "kagzi runs cancel",
	"Client.Cancel", "kagzi runs cancel",
	"Client.Consumers", "kagzi consumers",
	"Client.DrainQueue", "kagzi drain",
	"Client.Drain", "kagzi workers drain",
	"Client.DropMessage", "kagzi runs drop-message",
	"Client.ForceOffline", "kagzi workers force-offline",
	"Client.Fork", "kagzi runs fork",
	"Client.Get", "kagzi runs get",
	"Client.Health", "kagzi health",
	"Client.List", "kagzi runs list",
	"Client.Messages", "kagzi runs messages",
	"Client.PauseRun", "kagzi runs pause",
	"Client.Pauses", "kagzi pauses",
	"Client.RedeliverMessage", "kagzi runs redeliver-message",
	"Client.RestartAll", "kagzi runs restart",
	"Client.Restart", "kagzi runs restart",
	"Client.ResumeAll", "kagzi runs resume",
	"Client.ResumeSchedule", "kagzi schedules resume",
	"Client.Resume", "kagzi runs resume",
	"Client.RunLog", "kagzi runs log",
	"Client.SetKey", "kagzi keys set",
	"Client.SetLimit", "kagzi limits set",
	"Client.SetQueue", "kagzi queues set",
	"Client.Steps", "kagzi runs steps",
	"Client.Stranded", "kagzi stuck",
	"Client.Terminate", "kagzi runs terminate",
	"Client.UnpauseRuns", "kagzi runs unpause",
	"Client.UnpauseRun", "kagzi runs unpause",
	"Client.Unpause", "kagzi unpause",
	": Restart starts another", ": kagzi runs restart starts another",
	": Restart it, or Resume it if", ": kagzi runs restart starts another, kagzi runs resume continues it if",
	": Restart it", ": kagzi runs restart starts another",
	": Start or Restart another", ": kagzi runs restart starts another",
	": Fork from the wait", ": kagzi runs fork from the wait",
	"leave At and Delay out", "leave --set-at and --set-delay out",
	": cancel it first", ": kagzi runs cancel ends it",
	": cancel that one first", ": end it first with kagzi runs cancel",
	"Client.WorkerLog", "kagzi workers log",
	"the pool's connection string", "the database URL",
)

// InTerms returns a text of the library with commands in place of calls. Calls that have no command stay.
func InTerms(s string) string { return terms.Replace(s) }

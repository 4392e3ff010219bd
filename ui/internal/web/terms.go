package web

import "strings"

// terms are calls of the library that its texts advise, and what stands for them here.
var terms = strings.NewReplacer(
	"call kagzi.Migrate", "run kagzi migrate up",
	"kagzi.Migrate", "kagzi migrate up",
	"Client.BackfillSchedule", "backfill",
	"Client.CancelAll", "cancel",
	"Client.Cancel", "cancel",
	"Client.Consumers", "the page Topics",
	"Client.DrainQueue", "drain",
	"Client.Drain", "drain",
	"Client.ForceOffline", "force offline",
	"Client.Fork", "fork",
	"Client.Get", "the run's page",
	"Client.Health", "the overview",
	"Client.List", "the list of runs",
	"Client.DropMessage", "Drop",
	"Client.Messages", "the run's messages",
	"Client.Pauses", "the page Limits",
	"Client.RestartAll", "restart",
	"Client.Restart", "restart",
	"Client.ResumeAll", "resume",
	"Client.ResumeSchedule", "resume",
	"Client.Resume", "resume",
	"Client.RunLog", "the run's log",
	"Client.SetKey", "the page Limits",
	"Client.SetLimit", "the page Limits",
	"Client.SetQueue", "the page Limits",
	"Client.Steps", "the run's page",
	"Client.Stranded", "the page Stranded",
	"Client.Terminate", "terminate",
	"Client.UnpauseRuns", "unpause",
	"Client.UnpauseRun", "unpause",
	"Client.Unpause", "unpause",
	"Client.WorkerLog", "the worker's log",
	"kagzi: ", "",
)

// InTerms returns a text of the library with what a reader of the dashboard knows in place of calls. Calls that have no
// such thing stay.
func InTerms(s string) string { return terms.Replace(s) }

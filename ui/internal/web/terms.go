package web

import "strings"

// terms are calls of the library that its texts advise, and what stands for them here.
var terms = strings.NewReplacer(
	"call kagzi.Migrate", "run kagzi migrate up",
	"kagzi.Migrate", "kagzi migrate up",
	"admin.Client.BackfillSchedule", "backfill",
	"admin.Client.CancelAll", "cancel",
	"Client.Cancel", "cancel",
	"admin.Client.Consumers", "the page Topics",
	"admin.Client.DrainQueue", "drain",
	"admin.Client.Drain", "drain",
	"admin.Client.ForceOffline", "force offline",
	"admin.Client.Fork", "fork",
	"Client.Get", "the run's page",
	"admin.Client.Health", "the overview",
	"Client.List", "the list of runs",
	"admin.Client.DropMessage", "Drop",
	"admin.Client.Messages", "the run's messages",
	"admin.Client.Pauses", "the page Limits",
	"admin.Client.RestartAll", "restart",
	"admin.Client.Restart", "restart",
	"admin.Client.ResumeAll", "resume",
	"admin.Client.ResumeSchedule", "resume",
	"admin.Client.Resume", "resume",
	"admin.Client.RunLog", "the run's log",
	"admin.Client.SetKey", "the page Limits",
	"admin.Client.SetLimit", "the page Limits",
	"admin.Client.SetQueue", "the page Limits",
	"Client.Steps", "the run's page",
	"admin.Client.Stranded", "the page Stranded",
	"admin.Client.Terminate", "terminate",
	"admin.Client.UnpauseRuns", "unpause",
	"admin.Client.UnpauseRun", "unpause",
	"admin.Client.Unpause", "unpause",
	"admin.Client.WorkerLog", "the worker's log",
	"kagzi: ", "",
)

// InTerms returns a text of the library with what a reader of the dashboard knows in place of calls. Calls that have no
// such thing stay.
func InTerms(s string) string { return terms.Replace(s) }

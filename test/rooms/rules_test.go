package rooms

// rules are the figures of the drawing. Those of a module are sums and maxima over its packages, so that code may move
// between them.
var rules = []rule{
	{"root: files", 36, true, "The root is for authors of workflows. A feature brings its room.", rootFiles},
	{"root: lines", 6000, true, "Move code behind the API into an internal package.", rootLines},
	{"root: exported names", 159, true, "A new name needs a reason that an author of workflows accepts.", rootNames},
	{"root: methods of Client", 30, true, "Client has the everyday calls, and none for operators.", clientMethods},
	{"root: test files", 40, true, "Put a test into its package below test.", rootTests},
	{"fields of a struct", 16, false, "Make a type with methods of fields that change together.", fields},
	{"methods of a type", 40, false, "Give the methods to the part of the type that they use.", methods},
	{"fields away from home", 0, true, "Call a method beside the field, or move the code there.", fieldsAway},
	{"names of replay in worker", 25, true, "Let replay answer the question itself.", seam},
	{"files in a circle", 6, false, "Cut the circle: pass what the lower file needs as an argument.", circles},
	{"lines of a function", 80, false, "Split the function.", functionLines},
	{"complexity of a function", 18, false, "Split the function, or put its cases into a table.", complexities},
	{"lines of a statement", 80, false, "Split the statement, or let it answer one question.", statements},
	{"SQL in Replace", 0, true, "Write the statement whole.", replaced},
	{"short CTE names", 0, true, "Call the CTE by a word that says which rows it has.", shortNames},
	{"lines over 120 columns", 0, true, "Break the lines; -offenders prints them.", longLines},
	{"words of architecture.md", 8000, false, "Describe protocols beside their packages.", words("docs", architecture)},
	{"words of a page", 2500, false, "Split the page, or say it shorter.", words("docs", otherPage)},
	{"words of README.md", 1100, false, "Say it shorter, or in docs.", words(".", readme)},
	{"words of a doc comment", 120, false, "One sentence, then one rule a line. Move the rest to docs.", docComments},
	{"persons in comments", 0, true, "Name the actor: a worker, a claim, an operator, a transaction.", persons},
	{"what as a subject, per 10,000", 9, false, "Name the thing.", unclear},
}

func architecture(name string) bool { return name == "architecture.md" }
func otherPage(name string) bool    { return name != "architecture.md" }
func readme(name string) bool       { return name == "README.md" }

// rows are the structs that may have more than 16 fields, because each of them is a row of a table, with the reason.
var rows = map[string]string{
	".: RunFilter":                  "the columns of a run, as users select by them",
	".: RunInfo":                    "a run, as users see it",
	"admin: ScheduleInfo":           "a schedule, as users see it",
	"admin: WorkerInfo":             "a worker, as users see it",
	"store: ClaimedRun":             "a row of workflow_runs, as a claim returns it",
	"store: Run":                    "a row of workflow_runs",
	"store: StepRow":                "a row of step_runs",
	"store: Template":               "a row of schedules",
	"store: Worker":                 "a row of workers",
	"store/inspect: WorkerRow":      "a row of workers, with counts",
	"chaos/internal/check: row":     "a row of workflow_runs",
	"chaos/internal/evidence: Run":  "a row of workflow_runs",
	"chaos/internal/evidence: Step": "a row of step_runs",
	"test/model: Run":               "a row of workflow_runs in the model",
}

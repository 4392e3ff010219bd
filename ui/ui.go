// Package ui is Kagzi's dashboard: an http.Handler that a service puts in its own mux.
//
//	mux.Handle("/kagzi/", ui.Handler(client, ui.Config{}))
//
// It shows the client's namespace: whether the work goes on, the runs with their timelines and why they wait,
// schedules, topics, limits and workers. Pages update themselves while they are open. With [Config.Authorize] the
// dashboard also changes runs, schedules, limits and workers, and hands on who did it and why.
//
// Everything is served from the program itself: there is no build step, and no request to any other host. The handler
// signs nobody in: the service must authenticate in front of it. The README in this folder describes the pages, what
// they cost and what a service must do.
package ui

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
)

// Config configures a Handler. Its zero value shows everything to everybody who reaches the handler, and changes
// nothing.
type Config struct {
	// Path is where a browser finds the dashboard: every link begins with it. It begins and ends with a slash. Zero
	// means "/kagzi/". If http.StripPrefix or a proxy stands in front, Path is what the browser asks for nevertheless.
	// The handler must get all of it or, if it is removed on the way, nothing of it.
	Path string

	// Authorize says who sends a request, and whether that person may do what it asks for. It is asked before each
	// page, stream and change. For a change it is asked twice: whether it is allowed, and whether its object may be
	// viewed. It is also asked for each button of a page, which is not shown if Authorize refuses it. Open pages ask
	// again each second, and end if they are refused. So it must be quick: it should not ask a database, unless the
	// request is a POST.
	//
	// The actor goes into the audit log; it may be empty. An error refuses the request with
	// status 403, and its text is shown. Nil means that everybody may read and nobody may change anything. It must be
	// safe for concurrent use.
	Authorize func(r *http.Request, a Action) (actor string, err error)

	// HidePayloads hides inputs, results, and the payloads of messages and events: pages show only their sizes, and
	// they cannot be downloaded. Errors, names, IDs, tags, headers and progress are shown.
	HidePayloads bool

	// Pool is the client's pool. The page Doctor needs it to examine the database; with nil that page says so, and all
	// others work.
	Pool *pgxpool.Pool

	// MaxStreams is how many pages may update themselves at the same time. Others stay as they were loaded. Zero means
	// 500; a negative number means none.
	MaxStreams int

	// Logger receives the changes that were made, with their actors, and the errors that a page cannot show. A panic in
	// its handler is caught. Nil means slog.Default().
	Logger *slog.Logger
}

// Handler returns the dashboard of the client's namespace. Any goroutine may use it, and nothing has to be closed.
// Handler does no I/O and starts no goroutine: a database that is away, or that was not migrated, is reported by the
// pages. It panics if c is nil, or if cfg.Path is not a path that begins and ends with a slash, because that is a
// mistake in the program.
//
// A hundred browsers on a page cost the database what one of them costs: what a page shows is looked up at most once a
// second, and less often if that takes long. Each look ends after 5 seconds. Pages that update themselves hold a
// request open for up to 5 minutes, and then send another one; http.Server.Shutdown ends them.
func Handler(c *kagzi.Client, cfg Config) http.Handler {
	d, err := newDashboard(c, cfg)
	if err != nil {
		panic(err)
	}
	return d
}

// A Verb is what a request wants to do. Those other than View change something, and have the names of the commands of
// the command line.
type Verb string

// The verbs of Actions, each with the objects that it is about.
const (
	View        Verb = "view"         // show a page; all objects
	Cancel      Verb = "cancel"       // runs
	Resume      Verb = "resume"       // runs and schedules
	Restart     Verb = "restart"      // runs
	Fork        Verb = "fork"         // runs
	Terminate   Verb = "terminate"    // runs
	Delete      Verb = "delete"       // runs, schedules, consumers and limits on steps
	Signal      Verb = "signal"       // runs: send a message
	Redeliver   Verb = "redeliver"    // runs: give a message that did not decode to them again
	DropMessage Verb = "drop-message" // runs: remove a message that they have not read
	Update      Verb = "update"       // runs: queue, priority, due time, tags, version
	// runs, schedules, queues with their keys, workflows, groups, consumers, and OnLimit: all runs of the namespace
	Pause        Verb = "pause"
	Unpause      Verb = "unpause"       // as Pause, except schedules, which are resumed
	Trigger      Verb = "trigger"       // schedules and consumers: start a run now
	Backfill     Verb = "backfill"      // schedules: start runs for ticks of the past
	Skip         Verb = "skip"          // consumers: an event that they do not get
	Set          Verb = "set"           // queues: their limits and those of their keys; and limits on steps
	Drain        Verb = "drain"         // workers, and queues: all workers of them
	ForceOffline Verb = "force-offline" // workers
)

// An Object is the sort of thing that an Action is about.
type Object string

// The objects of Actions, each with what its ID is.
const (
	OnOverview Object = "overview" // the pages Overview and Stranded, and paths without a page; no ID
	OnRun      Object = "run"      // the run's ID
	OnSchedule Object = "schedule" // its name
	OnTopic    Object = "topic"    // its name
	OnConsumer Object = "consumer" // its name
	OnQueue    Object = "queue"    // its name: its page with its keys, and their limits, pauses and workers
	OnGroup    Object = "group"    // its name; empty for the page of groups
	OnWorkflow Object = "workflow" // its name: a pause of it in all queues
	// the name of a limit on steps; empty for the page Limits and for pauses of the whole namespace
	OnLimit  Object = "limit"
	OnWorker Object = "worker" // the worker's ID
	// the page Audit log, which names all that was changed; no ID. Pages of things show their own changes to who may
	// view those
	OnAudit  Object = "audit"
	OnDoctor Object = "doctor" // the page Doctor; no ID
)

// An Action is what a request wants to do, as [Config.Authorize] is asked. A policy that lets operators change
// everything, and others only read:
//
//	func(r *http.Request, a ui.Action) (string, error) {
//		user := userOf(r)
//		if a.Changes() && !user.Operator {
//			return "", errors.New("only operators may change this")
//		}
//		return user.Email, nil
//	}
type Action struct {
	Verb   Verb
	Object Object
	// ID says which one, as at the constants of Object. A run is always named by its run ID, as RunInfo has it, also if
	// its page is asked for by the run's own ID.
	//
	// It is empty for lists, for the form of a change that does not say yet what it is about, and for a change of many
	// runs: then Authorize is asked for that once, and for each of the runs, with its ID. Those that it refuses are
	// left out.
	ID string
}

// Changes reports whether the action changes something: whether its verb is not View.
func (a Action) Changes() bool { return a.Verb != View }

// String returns the action in words, as in "cancel run 0198a1b2-…".
func (a Action) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", a.Verb, a.Object, a.ID))
}

const defaultPath = "/kagzi/"

// validPath returns the error of a Config's Path.
func validPath(p string) error {
	if !strings.HasPrefix(p, "/") || !strings.HasSuffix(p, "/") || p != "/" && (path.Clean(p)+"/" != p || p == "//") ||
		strings.ContainsAny(p, "?#%\\\"<> ") {
		return fmt.Errorf(`ui: Config.Path is %q: give a path that begins and ends with a slash, such as "/kagzi/"`, p)
	}
	return nil
}

var errNoClient = errors.New("ui: the client is nil: make one with kagzi.NewClient")

// Package ui is Kagzi's dashboard: an http.Handler that a service puts in its own mux.
//
//	mux.Handle("/kagzi/", ui.Handler(client, ui.Config{}))
//
// It shows the client's namespace: whether the work goes on, the runs and why they wait, schedules, topics, limits and workers. With an
// Authorize it also changes them, and records who did it. Everything is served from the program itself: no build step, and no request to any
// other host.
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

// Config configures a Handler. Its zero value shows everything and changes nothing.
type Config struct {
	// Path is where a browser finds the dashboard: every link begins with it. It begins and ends with a slash. Zero means "/kagzi/". If something
	// in front of the handler removes a part of the path, such as http.StripPrefix or a proxy, Path has that part nevertheless.
	Path string

	// Authorize says who sends a request, and whether that person may do what it asks for. It is asked for every page and every change, and
	// whether to show the button of a change, so it must be quick. The actor is recorded with each change. An error refuses the request, and
	// its text is shown. Zero means that everybody who reaches the handler may read, and nobody may change anything. Authorize must be safe for
	// concurrent use.
	Authorize func(r *http.Request, a Action) (actor string, err error)

	// HidePayloads hides inputs, results, and the payloads of messages and events: pages show only their size. Errors, names, tags, headers and
	// progress are shown.
	HidePayloads bool

	// Pool is the client's pool. The page Doctor needs it to examine the database; without it the page says so.
	Pool *pgxpool.Pool

	// MaxStreams is how many pages may update themselves live at the same time. Others stay as they were loaded. Zero means 500.
	MaxStreams int

	// Logger receives the errors that a page cannot show. Zero means slog.Default().
	Logger *slog.Logger
}

// Handler returns the dashboard of the client's namespace. It does no I/O and starts no goroutine. It panics if c is nil or cfg.Path is not a
// path that begins and ends with a slash, because that is a mistake in the program, as http.ServeMux does.
//
// All that a hundred browsers see costs the database what one of them costs: what a page shows is looked up at most once a second, and less often if that
// takes long.
func Handler(c *kagzi.Client, cfg Config) http.Handler {
	d, err := newDashboard(c, cfg)
	if err != nil {
		panic(err)
	}
	return d
}

// A Verb is what a request wants to do. Those other than View change something, and are the commands of the command line.
type Verb string

// The verbs of Actions.
const (
	View         Verb = "view"
	Cancel       Verb = "cancel"
	Resume       Verb = "resume"
	Restart      Verb = "restart"
	Fork         Verb = "fork"
	Terminate    Verb = "terminate"
	Delete       Verb = "delete"
	Signal       Verb = "signal"
	Update       Verb = "update"
	Pause        Verb = "pause"
	Unpause      Verb = "unpause"
	Trigger      Verb = "trigger"
	Backfill     Verb = "backfill"
	Skip         Verb = "skip"
	Set          Verb = "set" // a limit
	Drain        Verb = "drain"
	ForceOffline Verb = "force-offline"
)

// An Object is the sort of thing that an Action is about.
type Object string

// The objects of Actions. Some are about the whole namespace and have no ID.
const (
	OnOverview Object = "overview" // the pages about the namespace as a whole
	OnRun      Object = "run"
	OnSchedule Object = "schedule"
	OnTopic    Object = "topic"
	OnConsumer Object = "consumer"
	OnLimit    Object = "limit" // queues, keys, limits of steps, and pauses
	OnWorker   Object = "worker"
	OnDoctor   Object = "doctor"
)

// An Action is what a request wants to do. A policy that lets operators change everything, and others only read:
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
	ID     string // of the run, the name of the schedule and so on; empty for lists, and for changes of several things
}

// Changes reports whether the action changes something.
func (a Action) Changes() bool { return a.Verb != View }

// String returns the action in words, as in "cancel run 0198…".
func (a Action) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", a.Verb, a.Object, a.ID))
}

const defaultPath = "/kagzi/"

// validPath returns the error of a Config's Path.
func validPath(p string) error {
	if !strings.HasPrefix(p, "/") || !strings.HasSuffix(p, "/") || p != "/" && (path.Clean(p)+"/" != p || p == "//") || strings.ContainsAny(p, "?#%\\\"<> ") {
		return fmt.Errorf(`ui: Config.Path is %q: give a path that begins and ends with a slash, such as "/kagzi/"`, p)
	}
	return nil
}

var errNoClient = errors.New("ui: the client is nil: make one with kagzi.NewClient")

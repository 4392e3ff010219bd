package ui

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"

	"github.com/kagzi/kagzi/ui/internal/web"
)

// A Verb is what a request wants to do. Those other than View change something, and have the names of the commands of
// the command line.
type Verb string

// The verbs of Actions, each with the objects that it is about.
const (
	View             Verb = "view"              // show a page; all objects
	Start            Verb = "start"             // workflows: start a run
	Cancel           Verb = "cancel"            // runs
	Resume           Verb = "resume"            // runs and schedules
	Restart          Verb = "restart"           // runs
	Fork             Verb = "fork"              // runs
	Terminate        Verb = "terminate"         // runs
	Delete           Verb = "delete"            // runs, schedules, consumers and limits on steps
	Signal           Verb = "signal"            // runs: send a message
	RedeliverMessage Verb = "redeliver-message" // runs: give a message that did not decode to them again
	DropMessage      Verb = "drop-message"      // runs: remove a message that they have not read
	Resolve          Verb = "resolve"           // runs: say what the call of a step in doubt has done
	Update           Verb = "update"            // runs: queue, priority, due time, tags, version
	// runs, schedules, queues with their keys, workflows, groups, consumers, and OnLimit: all runs of the namespace
	Pause        Verb = "pause"
	Unpause      Verb = "unpause"       // as Pause, except schedules, which are resumed
	Trigger      Verb = "trigger"       // schedules and consumers: start a run now
	Backfill     Verb = "backfill"      // schedules: start runs for ticks of the past
	Skip         Verb = "skip"          // consumers: an event that they do not get
	Set          Verb = "set"           // queues: their limits and those of their keys; and limits on steps
	Reset        Verb = "reset"         // queues and limits on steps: let them be as the code declares them
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
	// its name: a start of a run of it, or a pause of it in all queues; empty for the form of a start
	OnWorkflow Object = "workflow"
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
	// Namespace is the client's, or the name that [Namespaces] was given for the client.
	Namespace string
}

// Changes reports whether the action changes something: whether its verb is not View.
func (a Action) Changes() bool { return a.Verb != View }

// String returns the action in words, as in "cancel run 0198a1b2-…".
func (a Action) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", a.Verb, a.Object, a.ID))
}

// asks returns the action of a page or a form.
func asks(verb Verb, object Object, id ...string) web.Action {
	return web.Action{Verb: string(verb), Object: string(object), ID: strings.Join(id, "")}
}

// accessOf asks what Config.Authorize says, unless that is nil. namespace is that of the dashboard.
func accessOf(namespace string, authorize func(*http.Request, Action) (actor string, err error)) web.Access {
	if authorize == nil {
		return web.Access{}
	}
	return web.NewAccess(func(r *http.Request, a web.Action) (string, error) {
		return authorize(r, Action{Verb(a.Verb), Object(a.Object), a.ID, cmp.Or(a.Namespace, namespace)})
	})
}

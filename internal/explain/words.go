package explain

import (
	"fmt"
	"strings"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
)

// Words are how a reader's sentences name things. A field that is nil has a plain text instead, and a Deed that is nil
// leaves advice out.
type Words struct {
	Now func() time.Time
	// a text that the application has written, such as a name or an error: here a page escapes it
	Text    func(s string) string
	Moment  func(t time.Time) string     // a moment, with its date
	Ago     func(t time.Time) string     // a moment, by how long ago it was: "3m ago"
	Elapsed func(since time.Time) string // how long something has been under way
	Took    func(d time.Duration) string // how long something took
	Run     func(id kagzi.RunID) string  // another run
	Named   func(id string) string       // another run by its own ID, or by its run ID if it has no other
	Worker  func(id string) string       // a worker
	// how to do something, as a noun or an imperative: the command, or the button's name; empty if there is no way
	Deed func(d Deed) string
}

// A Deed is something that a reader may do.
type Deed struct {
	Verb Verb
	Run  kagzi.RunInfo // the run that the sentences are about
	// of the worker for Drain, the queue for Workers, the schedule for Previous, the signal for Signal
	Name   string
	Other  kagzi.RunID  // for Child
	Ref    kagzi.Ref    // for Log
	Target admin.Target // for Unpause
}

// A Verb says which Deed it is.
type Verb string

// The verbs. Those that change something are named as those of the command line; the others show something.
const (
	Resume     Verb = "resume"
	Restart    Verb = "restart"
	Signal     Verb = "signal"
	UnpauseRun Verb = "unpause-run"
	Unpause    Verb = "unpause"
	Drain      Verb = "drain"
	Limits     Verb = "limits"   // in the plural: "kagzi queues list and kagzi keys list"
	Workers    Verb = "workers"  // those of the queue, with their workflows
	Previous   Verb = "previous" // the active runs of the schedule
	Children   Verb = "children" // of the run
	Child      Verb = "child"    // one of them
	Log        Verb = "log"      // of Deed.Ref, a run that was deleted

	Unread           Verb = "unread"            // its messages that it has not read
	RedeliverMessage Verb = "redeliver-message" // the message with the ID Deed.Name
	DropMessage      Verb = "drop-message"      // any message without a Name
	Resolve          Verb = "resolve"           // the step Deed.Name
)

// complete returns the words, with plain texts in place of missing ones.
func (w Words) complete() Words {
	if w.Now == nil {
		w.Now = time.Now
	}
	if w.Text == nil {
		w.Text = func(s string) string { return s }
	}
	if w.Moment == nil {
		w.Moment = func(t time.Time) string { return t.UTC().Format(time.RFC3339) }
	}
	if w.Ago == nil {
		w.Ago = w.Moment
	}
	if w.Took == nil {
		w.Took = time.Duration.String
	}
	if w.Elapsed == nil {
		now, took := w.Now, w.Took
		w.Elapsed = func(since time.Time) string { return took(now().Sub(since)) }
	}
	if w.Run == nil {
		w.Run = func(id kagzi.RunID) string { return string(id) }
	}
	if w.Named == nil {
		w.Named = w.Text
	}
	if w.Worker == nil {
		w.Worker = func(id string) string { return id }
	}
	if w.Deed == nil {
		w.Deed = func(Deed) string { return "" }
	}
	return w
}

// limitText says what a limit allows.
func (r *reasons) limitText(l admin.LimitInfo) string {
	var parts []string
	if l.Every > 0 {
		parts = append(parts, Rate(admin.Rate{Starts: 1, Per: l.Every, Burst: l.Burst}, r.Took))
	}
	if l.MaxRunning > 0 {
		parts = append(parts, fmt.Sprintf("at most %d at once", l.MaxRunning))
	}
	if len(parts) == 0 {
		return "any number"
	}
	return strings.Join(parts, ", ")
}

// workersDied is a clause about the workers of a run.
func workersDied(n int) string { return plural(n, "worker") + " died" }

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

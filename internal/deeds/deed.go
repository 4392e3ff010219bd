// Package deeds has all that operators can do, as one table: what a deed is about, what it says, what it asks for, what
// it would do, and how it is done. The dashboard makes a form of each deed, the command line a command.
//
//	table ──► Deed ──► dashboard: View ──► form ──► Values ──► Check ──► Do ──► "Cancelled order-42."
//	               └─► command line: flags ──► Values ──► Check ──► Do ──► "cancelled order-42"
package deeds

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
)

// An Object is the sort of thing that a deed is about.
type Object string

// The objects of deeds.
const (
	Run      Object = "run"
	Schedule Object = "schedule"
	Consumer Object = "consumer"
	Worker   Object = "worker"
	Queue    Object = "queue"
	Key      Object = "key"
	Limit    Object = "limit" // on steps
	Workflow Object = "workflow"
	Target   Object = "runs" // of a queue, workflow, key or group
)

// A Deed is something that operators can do.
type Deed struct {
	Verb   string // "cancel"
	Object Object
	Past   string // "cancelled"

	Short  string   // what it does, for a list of deeds
	Says   []string // what it does, whatever it is done to
	Title  string   // of a form, before the name of what it is about; empty: the verb
	Button string   // empty: "Cancel the run"
	Danger bool     // it cannot be undone
	Slow   bool     // it may take longer than people wait
	Fields []Field

	// Look says what the deed would do to what is asked about, as that is now. Nil: nothing more than Says.
	Look func(ctx context.Context, a Asked, v *View) error
	Do   func(ctx context.Context, a Asked) (Done, error)
	// Valid returns the mistake in the values together. Nil: each is checked alone.
	Valid func(a Asked) error
	Plan  func(ctx context.Context, a Asked) (*Plan, error) // what it would start; nil: Says and Look are all
	Keeps bool                                              // fields that are not given stay as they are
	Many  *Many                                             // nil: one at a time
}

// A Many is how a deed is done to many runs.
type Many struct {
	Now   string         // "cancelling"
	To    []kagzi.Status // the runs that it applies to
	Stops bool           // it succeeds for a run that is cancelled already, and changes nothing
	Ends  bool           // it deletes runs, and their children with them
	Ask   []string       // fields of which one must be filled before it can be tried

	One func(ctx context.Context, a Asked, run kagzi.Ref) (made kagzi.RunID, err error)
	// Dry says what the deed would do to the runs that f selects.
	Dry func(ctx context.Context, a Asked, f kagzi.RunFilter) (admin.BulkResult, error)
}

// Key is how a table of something for each deed calls it: "cancel run".
func (d Deed) Key() string { return d.Verb + " " + string(d.Object) }

// Logged reports whether Kagzi keeps who does it, and why. Of the start of a run it does not.
func (d Deed) Logged() bool { return d.Object != Workflow }

// Name returns what a form's title begins with.
func (d Deed) Name() string { return cmp.Or(d.Title, capital(d.Verb)) }

// Does returns the text of a form's button.
func (d Deed) Does() string { return cmp.Or(d.Button, capital(d.Verb)+" the "+string(d.Object)) }

// Field returns a field of the deed.
func (d Deed) Field(name string) Field {
	for _, f := range d.Fields {
		if f.Name == name {
			return f
		}
	}
	return Field{Name: name}
}

// A View is what a deed would do now to one thing.
type View struct {
	Name    string         // what people call the thing
	Run     *kagzi.RunInfo // the run that it is; nil if it is none
	Says    []string
	Fields  []Field
	Danger  bool
	Warning error // what would go wrong
	Refused error // why it cannot be done at all
}

// View looks what the deed would do.
func (d Deed) View(ctx context.Context, a Asked) (*View, error) {
	v := &View{Name: a.Name, Says: slices.Clone(d.Says), Danger: d.Danger, Fields: slices.Clone(d.Fields)}
	if d.Object == Run {
		run, err := a.Client.Get(ctx, a.Ref)
		if err != nil {
			return nil, err
		}
		v.Run = &run
	}
	if d.Look != nil {
		if err := d.Look(ctx, a, v); err != nil {
			return nil, err
		}
	}
	if d.Many == nil || v.Refused != nil || d.Check(a) != nil {
		return v, nil
	}
	_, wrong, err := d.Applies(ctx, a, *v.Run)
	if slices.ContainsFunc(d.Fields, func(f Field) bool { return f.Required != "" }) { // another value may do
		v.Warning = wrong
	} else {
		v.Refused = wrong
	}
	return v, err
}

// field returns a field of the view, to be changed.
func (v *View) field(name string) *Field {
	for i := range v.Fields {
		if v.Fields[i].Name == name {
			return &v.Fields[i]
		}
	}
	return &Field{}
}

// Run does the deed, unless a value is wrong: then the error is a Mistake.
func (d Deed) Run(ctx context.Context, a Asked) (Done, error) {
	if err := d.Check(a); err != nil {
		return Done{}, err
	}
	done, err := d.Do(ctx, a)
	if done.Said == "" {
		done.Said = d.Past + " " + a.Called()
	}
	return done, err
}

// A Done is what a deed has done.
type Done struct {
	Said    string       // a clause without its full stop, such as "paused order-42"
	New     kagzi.RunID  // the run that it has made
	Status  kagzi.Status // of a run that was to end: an active one while it is being cancelled
	Already bool         // it was so before
	Warning string       // a sentence about it
	Result  any          // for programs; nil: the rest is all
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// A Plan is what a backfill would start.
type Plan struct {
	Button  string
	All     int
	More    bool // there are more than 10,000
	Have    int  // have a run already
	Unknown bool // there are too many runs to be compared
	First   []Tick
	From    time.Time
	Until   time.Time
}

// Rest is how many ticks are not shown.
func (t *Plan) Rest() int { return t.All - len(t.First) }

// A Tick is one time of a timetable.
type Tick struct {
	At   time.Time
	Have bool
}

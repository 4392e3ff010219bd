package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store/inspect"
)

// A CountBy is a field by which [Runs.Count] groups runs: a [CountField], or a time by [ByStarted] or [ByEnded].
type CountBy interface{ countBy(*inspect.Grouping) error }

// A CountField is a field of runs by which [Runs.Count] groups them.
type CountField string

// The fields by which runs can be counted.
const (
	ByStatus   CountField = inspect.ByStatus
	ByWorkflow CountField = inspect.ByWorkflow
	ByQueue    CountField = inspect.ByQueue
	ByKind     CountField = inspect.ByKind // of the last failure
	// ByStep is the step that a run is at. For a failed run that is the step whose failure ended it, empty if the
	// function failed outside of steps. For an active run it is the step that the run waits for, or one under way that
	// has run for a second. It is empty for runs that completed or were cancelled.
	ByStep CountField = inspect.ByStep
)

var countFields = []CountField{ByStatus, ByWorkflow, ByQueue, ByKind, ByStep}

func (f CountField) countBy(g *inspect.Grouping) error {
	switch {
	case !slices.Contains(countFields, f):
		return fmt.Errorf("kagzi: cannot count by %s: use admin.ByStatus or another of the constants",
			text.Quote(string(f)))
	case slices.Contains(g.By, string(f)):
		return fmt.Errorf("kagzi: counts by %s twice: name it once", string(f))
	}
	g.By = append(g.By, string(f))
	return nil
}

// ByStarted counts by the time at which runs were started, in intervals of length d: [time.Hour], for example. The
// intervals are counted from midnight UTC of 1 January 1970, so those of a day begin at midnight UTC.
func ByStarted(d time.Duration) CountBy { return countTime{"ByStarted", d} }

// ByEnded is ByStarted for the ends of runs. Runs that are active are one group, with a zero time.
func ByEnded(d time.Duration) CountBy { return countTime{"ByEnded", d} }

type countTime struct {
	name   string
	length time.Duration
}

func (t countTime) countBy(g *inspect.Grouping) error {
	field := &g.Started
	if t.name == "ByEnded" {
		field = &g.Ended
	}
	switch {
	case *field != 0:
		return fmt.Errorf("kagzi: counts by %s twice: name it once", t.name)
	case t.length == 0:
		return fmt.Errorf("kagzi: the length of %s is 0: give one such as time.Hour", t.name)
	}
	*field = t.length
	return duration.Check("the length of "+t.name, t.length)
}

// A RunCount counts the runs of one group. Fields by which runs were not counted are zero. Its JSON follows the rules
// of [kagzi.RunInfo].
type RunCount struct {
	Status   kagzi.Status `json:"status,omitempty"`
	Workflow string       `json:"workflow,omitempty"`
	Queue    string       `json:"queue,omitempty"`
	Kind     kind.Kind    `json:"kind,omitempty"`
	Step     string       `json:"step,omitempty"`
	Started  time.Time    `json:"started,omitzero"` // the beginning of the interval in which the runs were started
	Ended    time.Time    `json:"ended,omitzero"`   // the same for their ends; zero if they are active
	Runs     int          `json:"runs"`
}

// Count counts the runs that f selects, grouped by all of by, the largest group first. Without by it returns one count
// of all. f.After and f.Limit are refused.
//
// Count reads every run that f selects: a million takes about a second, a step of each run some seconds. After 10
// seconds, or at the deadline of ctx if that is sooner, it returns an error that says so, as it does for more than
// 10,000 groups. Count is safe for concurrent use.
func (r Runs) Count(ctx context.Context, f kagzi.RunFilter, by ...CountBy) ([]RunCount, error) {
	var g inspect.Grouping
	var chosen inspect.Filter
	var rows []inspect.RunCount
	err := r.core.Usable(ctx)
	if err == nil {
		chosen, err = r.counted(f, by, &g)
	}
	if err == nil {
		err = r.core.CheckSchema(ctx, nil)
	}
	if err == nil {
		rows, err = r.core.Inspect.Counts(ctx, chosen, g)
	}
	if errors.Is(err, inspect.ErrTooMuchToCount) {
		err = fmt.Errorf("%w: narrow the filter, by Since, Status or Workflow for example, or count by less", err)
	}
	if err != nil {
		return nil, failure.Wrap(r.core.Public(ctx, err), "counts")
	}
	if len(by) == 0 && len(rows) == 0 {
		return []RunCount{{}}, nil
	}
	out := make([]RunCount, len(rows))
	for i, r := range rows {
		out[i] = RunCount{
			Status: kagzi.Status(r.Status), Workflow: r.Type, Queue: r.Queue, Kind: kind.Kind(r.Kind), Step: r.Step,
			Started: r.Started, Ended: r.Ended, Runs: r.Runs,
		}
	}
	return out, nil
}

// counted validates the arguments of Counts, and fills g. Its error is of kind.BadRequest.
func (r Runs) counted(f kagzi.RunFilter, by []CountBy, g *inspect.Grouping) (inspect.Filter, error) {
	if f.After != "" || f.Limit != 0 {
		return inspect.Filter{},
			failure.Of(kind.BadRequest, errors.New("kagzi: counts have no pages: leave out After and Limit"))
	}
	for _, b := range by {
		err := errors.New("kagzi: a CountBy is nil: use admin.ByStatus or another one")
		if b != nil {
			err = b.countBy(g)
		}
		if err != nil {
			return inspect.Filter{}, failure.Of(kind.BadRequest, err)
		}
	}
	return f.Core(r.core)
}

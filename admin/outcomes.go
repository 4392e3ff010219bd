package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store/inspect"
)

// Outcomes say what became of the runs that were started in consecutive intervals: see [Client.Outcomes].
type Outcomes struct {
	At        time.Time `json:"at,omitzero"` // by the database's clock
	Intervals []Outcome `json:"intervals"`   // from old to new; the last one is under way
	// KeptSince is the first end of the completed runs that were read; zero if none was. Retention may have deleted
	// runs that ended before, so intervals that begin before it may lack some.
	KeptSince time.Time `json:"kept_since,omitzero"`
}

// An Outcome counts the runs that were started within an interval, by how they stand now.
type Outcome struct {
	From      time.Time `json:"from,omitzero"`
	Until     time.Time `json:"until,omitzero"`
	Completed Tally     `json:"completed"`
	Failed    Tally     `json:"failed"`
	Cancelled Tally     `json:"cancelled"`
	Active    Tally     `json:"active"`
}

// A Tally is a number of runs.
type Tally struct {
	Runs int  `json:"runs"`
	More bool `json:"more,omitempty"` // there may be more
}

// Plus returns the sum of two tallies.
func (t Tally) Plus(other Tally) Tally { return Tally{t.Runs + other.Runs, t.More || other.More} }

// Started returns how many runs were started, and are in the table.
func (o Outcome) Started() Tally { return o.Completed.Plus(o.Failed).Plus(o.Cancelled).Plus(o.Active) }

// Bounds of the arguments of Outcomes.
const (
	mostOutcomes     = 100
	shortestOutcome  = time.Minute
	longestOfOutcome = 366 * 24 * time.Hour
)

// Outcomes returns what became of the runs that were started in the last n intervals of that length, by the time in
// their IDs. The intervals are counted from midnight UTC of 1 January 1970, so those of a day begin at midnight UTC.
// The last one contains the present.
//
// It reads a bounded number of rows: of each interval and status the first 20,000, of a thousand pairs of queue and
// workflow at most. More says where there may be others; [Runs.Count] counts all.
//
// The length is from a minute to 366 days, and n from 1 to 100. A request that the database refuses or does not answer
// within 5 seconds fails. Outcomes is safe for concurrent use.
func (c *Client) Outcomes(ctx context.Context, length time.Duration, n int) (Outcomes, error) {
	ctx, cancel := context.WithTimeout(ctx, statsTimeout)
	defer cancel()
	err := c.core.Usable(ctx)
	switch {
	case err != nil:
	case length < shortestOutcome || length > longestOfOutcome:
		err = failure.Of(kind.BadRequest, fmt.Errorf("the length is %v: give one from a minute to 366 days", length))
	case n < 1 || n > mostOutcomes:
		err = failure.Of(kind.BadRequest, fmt.Errorf("the number is %d: give one from 1 to %d", n, mostOutcomes))
	default:
		err = c.core.CheckSchema(ctx, nil)
	}
	var read inspect.Outcomes
	if err == nil {
		read, err = c.core.Inspect.Outcomes(ctx, length, n)
	}
	if err != nil {
		return Outcomes{}, failure.Wrap(c.core.Public(ctx, err), "outcomes")
	}
	out := Outcomes{At: read.At, KeptSince: read.KeptSince, Intervals: make([]Outcome, len(read.Parts))}
	for i, p := range read.Parts {
		out.Intervals[i] = Outcome{
			From: p.From, Until: p.From.Add(length), Completed: Tally(p.Completed), Failed: Tally(p.Failed),
			Cancelled: Tally(p.Cancelled), Active: Tally(p.Active),
		}
	}
	return out, nil
}

package ui

import (
	"context"
	"errors"
	"time"

	"github.com/kagzi/kagzi"
)

// mostBehind is for how many keys and groups a page of the list asks which run holds their slots.
const mostBehind = 10

// A line is the runs of one key or group that wait for its slots.
type line struct {
	queue string // empty for a group
	key   kagzi.Key
	group kagzi.Group
}

// lineOf returns the line of a run that is due; the zero one if it is in none.
func lineOf(r kagzi.RunInfo) (l line) {
	switch {
	case r.Status != kagzi.StatusPending || !r.PausedAt.IsZero() || r.AvailableAt.After(time.Now()):
	case r.Group != "":
		l.group = r.Group
	case r.Key != "":
		l.queue, l.key = r.Queue, r.Key
	}
	return l
}

// behind returns the runs that those of the page wait behind, by the IDs of the latter: each is named by its own ID, or
// by its run ID. All runs of a key wait behind the same one, so one of them is asked.
func (p *runsPage) behind(ctx context.Context, runs []kagzi.RunInfo) (map[kagzi.RunID]string, error) {
	holders, out := map[line]string{}, map[kagzi.RunID]string{}
	for _, r := range runs {
		l := lineOf(r)
		if l == (line{}) {
			continue
		}
		holder, asked := holders[l]
		if !asked && len(holders) < mostBehind {
			var err error
			if holder, err = p.holder(ctx, r.ID); err != nil {
				return nil, err
			}
			holders[l] = holder
		}
		if holder != "" {
			out[r.ID] = holder
		}
	}
	return out, nil
}

// holder returns the run that holds the slot for which the run waits; empty if it waits for none.
func (p *runsPage) holder(ctx context.Context, id kagzi.RunID) (string, error) {
	r, err := p.client.Get(ctx, id)
	if errors.Is(err, kagzi.ErrNotFound) {
		return "", nil
	}
	for _, w := range r.WaitingOn {
		if w.Behind != "" {
			return w.Behind, nil
		}
	}
	return "", err
}

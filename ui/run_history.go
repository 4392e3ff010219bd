package ui

import (
	"context"
	"fmt"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/ui/internal/gantt"
)

// A history is the steps of a run without payloads, as the cache keeps it.
type history struct {
	mark      string // of the RunInfo when it was read
	attempts  []kagzi.StepAttempt
	steps     []*gantt.Step
	payloads  *stepPayloads
	unsettled bool
}

const (
	// waitEvery is how often the steps of a run that waits are read: only its children can change.
	waitEvery = 10 * time.Second
	// perStep is how much less often the steps of a running run are read for each step that it has.
	perStep = 2 * time.Millisecond
)

// history returns the steps of a run. Reading thousands of them is dear, so they are read again only if the run can
// have made some.
func (p *runPage) history(ctx context.Context, run kagzi.RunInfo) (*history, error) {
	key := "history " + string(run.ID)
	mark := fmt.Sprint(run.Status, run.WaitingOn, run.AvailableAt, run.Attempts, run.StartedAt, run.EndedAt, run.Worker,
		run.Recoveries, run.PausedAt)
	last, _ := p.cache.Peek(key).View.(*history)
	f := p.cache.Get(ctx, key, last.keeps(run, mark, p.cache.Every), func(ctx context.Context) (any, error) {
		attempts, err := p.client.Steps(ctx, run.ID, kagzi.StepFilter{NoPayloads: true})
		if err != nil {
			return nil, err
		}
		return newHistory(mark, attempts, last), nil
	})
	h, _ := f.View.(*history)
	if h == nil || f.Err != nil {
		return nil, f.Err
	}
	return h, nil
}

// keeps returns for how long the steps that were read last are good enough for the run as it is now. h is nil if none
// were read.
func (h *history) keeps(run kagzi.RunInfo, mark string, every time.Duration) time.Duration {
	switch {
	case h == nil:
		return every
	case run.Status == kagzi.StatusRunning:
		return max(every, time.Duration(len(h.attempts))*perStep)
	case h.mark == mark:
		return max(every, waitEvery)
	}
	return every
}

// newHistory returns the history of the attempts. It goes on with the payloads that the last one knew.
func newHistory(mark string, attempts []kagzi.StepAttempt, last *history) *history {
	h := &history{
		mark: mark, attempts: attempts, steps: gantt.Steps(attempts),
		payloads: &stepPayloads{known: map[attemptKey]attemptPayloads{}},
	}
	if last != nil {
		h.payloads = last.payloads
	}
	for _, a := range attempts {
		h.unsettled = h.unsettled || a.Status == kagzi.StatusRunning
	}
	return h
}

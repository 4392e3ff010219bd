package ui

import (
	"context"
	"slices"
	"sync"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/ui/internal/gantt"
)

// The payloads of steps are most of a long history, and a page shows those of a hundred steps. So a history is read
// without them, and the page asks for those of its own steps, once: what an attempt has recorded does not change while
// its status stays the same.

const (
	// keptPayload is the size up to which a step's payload is on the page. Larger ones are a link.
	keptPayload = 8 << 10
	// keptPayloads bounds the payloads of a run in the cache.
	keptPayloads = 2 << 20
)

// stepPayloads are the payloads of a run's steps that a page has asked for.
type stepPayloads struct {
	mu    sync.Mutex
	known map[attemptKey]attemptPayloads
	bytes int // of them
}

type attemptKey struct {
	step    string
	attempt int
	status  kagzi.Status
}

func keyOf(a kagzi.StepAttempt) attemptKey { return attemptKey{a.Step, a.Attempt, a.Status} }

// attemptPayloads are the payloads of an attempt, unless they are large, and their sizes.
type attemptPayloads struct {
	input, output         []byte
	inputSize, outputSize int
	headers               kagzi.Headers
}

// missing returns the names of those of the steps that have attempts whose payloads are not known. If too many payloads
// of other pages are known, it forgets all of them first.
func (p *stepPayloads) missing(steps []*gantt.Step) (names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	unknown := func(a kagzi.StepAttempt) bool { _, ok := p.known[keyOf(a)]; return !ok }
	lacks := func(s *gantt.Step) bool { return slices.ContainsFunc(s.Attempts, unknown) }
	if p.bytes > keptPayloads/2 && slices.ContainsFunc(steps, lacks) {
		p.known, p.bytes = map[attemptKey]attemptPayloads{}, 0
	}
	for _, s := range steps {
		if lacks(s) {
			names = append(names, s.Name)
		}
	}
	return names
}

// of returns the payloads of the steps' attempts.
func (p *stepPayloads) of(steps []*gantt.Step) map[attemptKey]attemptPayloads {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[attemptKey]attemptPayloads{}
	for _, s := range steps {
		for _, a := range s.Attempts {
			out[keyOf(a)] = p.known[keyOf(a)]
		}
	}
	return out
}

// add keeps the payloads of attempts that were read.
func (p *stepPayloads) add(attempts []kagzi.StepAttempt, hide bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	keep := func(data []byte) []byte {
		if hide || len(data) > keptPayload || p.bytes+len(data) > keptPayloads {
			return nil
		}
		p.bytes += len(data)
		return append([]byte(nil), data...)
	}
	for _, a := range attempts {
		switch a.Type {
		case "MARKER", "PEEK", "RESERVE": // their outputs are Kagzi's own
			a.Output = nil
		}
		p.known[keyOf(a)] = attemptPayloads{keep(a.Input), keep(a.Output), len(a.Input), len(a.Output), a.Headers}
	}
}

// payloadsOf returns the payloads of some steps of a run. It reads those that are not known.
func (p *runPage) payloadsOf(ctx context.Context, id kagzi.RunID, h *history,
	steps []*gantt.Step,
) (map[attemptKey]attemptPayloads, error) {
	if names := h.payloads.missing(steps); len(names) > 0 {
		attempts, err := p.client.Steps(ctx, id, kagzi.StepFilter{Steps: names})
		if err != nil {
			return nil, err
		}
		h.payloads.add(attempts, p.payloads.hidden())
	}
	return h.payloads.of(steps), nil
}

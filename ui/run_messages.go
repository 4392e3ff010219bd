package ui

import (
	"context"
	"iter"
	"net/url"
	"slices"
	"strings"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
)

// A message is one that the run has got.
type message struct {
	admin.MessageInfo // without its payload
	Shown             payload
	Ignored           string // why the run does not read it; empty if it has, or may
	From              kagzi.RunID
	FromStep          string
}

// mostMessages is how many messages the page has.
const mostMessages = 50

// messages returns the run's messages, and reports whether there are more.
func (p *runPage) messages(ctx context.Context, run kagzi.RunInfo) (all []message, more bool, err error) {
	awaited := awaited(run)
	for m, err := range p.eachMessage(ctx, run.ID, admin.MessageFilter{}) {
		if err != nil {
			return nil, false, err
		}
		if len(all) == mostMessages {
			return all, true, nil
		}
		raw := pathOf(run) + "/raw?" + url.Values{
			"of": {"message"}, "signal": {m.Signal},
			"message": {string(m.ID)},
		}.Encode()
		out := message{MessageInfo: m, Shown: p.payloads.sizeOnly(len(m.Payload), raw)}
		if len(m.Payload) <= keptPayload {
			out.Shown = p.payloads.show(m.Payload, raw)
		}
		out.Payload = nil
		if id, step, ok := strings.Cut(m.SentBy, "/"); ok && isRunID(id) {
			out.From, out.FromStep = kagzi.RunID(id), step
		}
		switch {
		case m.ReadBy != "":
		case run.Status.Ended():
			out.Ignored = "the run has ended, and never read it"
		case len(awaited) > 0 && !slices.Contains(awaited, m.Signal):
			out.Ignored = "the run waits for " + strings.Join(awaited, " and ") + ": is one of the names misspelt?"
		}
		all = append(all, out)
	}
	return all, false, nil
}

// messagePortion is how many messages are read at once, each of which may have 4 MiB.
const messagePortion = 10

// eachMessage returns the messages of a run. The payload of one is gone with the next.
func (p *runPage) eachMessage(ctx context.Context, ref kagzi.Ref,
	f admin.MessageFilter,
) iter.Seq2[admin.MessageInfo, error] {
	return func(yield func(admin.MessageInfo, error) bool) {
		f.Limit = messagePortion
		for {
			page, err := p.admin.Messages(ctx, ref, f)
			if err != nil {
				yield(admin.MessageInfo{}, err)
				return
			}
			for _, m := range page {
				if !yield(m, nil) {
					return
				}
			}
			if len(page) < f.Limit {
				return
			}
			f.After = page[len(page)-1].ID
		}
	}
}

// awaited returns the signals that the run waits for.
func awaited(run kagzi.RunInfo) (names []string) {
	for on := range strings.SplitSeq(run.WaitingOn, "; ") {
		if name, ok := strings.CutPrefix(on, "signal "); ok {
			names = append(names, name)
		}
	}
	return names
}

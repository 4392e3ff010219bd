package ui

import (
	"context"
	"iter"
	"net/url"
	"slices"
	"strings"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/deeds"
	"github.com/kagzi/kagzi/waits"
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
	for m, err := range p.eachMessage(ctx, run.ID, admin.MessageFilter{}) {
		if err != nil {
			return nil, false, err
		}
		if len(all) == mostMessages {
			return all, true, nil
		}
		q := url.Values{"of": {"message"}, "signal": {m.Signal}, "message": {string(m.ID)}}
		if m.Request {
			q.Set("request", "true")
		}
		raw := pathOf(run) + "/raw?" + q.Encode()
		out := message{MessageInfo: m, Shown: p.payloads.sizeOnly(len(m.Payload), raw)}
		if len(m.Payload) <= keptPayload {
			out.Shown = p.payloads.show(m.Payload, raw)
		}
		out.Payload = nil
		if id, step, ok := strings.Cut(m.SentBy, "/"); ok && deeds.IsRunID(id) {
			out.From, out.FromStep = kagzi.RunID(id), step
		}
		switch {
		case m.ReadBy != "", m.Expired:
		case run.Status.Ended():
			out.Ignored = "the run has ended, and never read it"
		default:
			out.Ignored = ignored(run.WaitingOn, m)
		}
		all = append(all, out)
	}
	return all, false, nil
}

// ignored returns why a run that waits for these does not read the message, empty if it may.
func ignored(on waits.List, m admin.MessageInfo) string {
	signals, requests := on.Names(waits.Signal), on.Names(waits.Request)
	mine := signals
	if m.Request {
		mine = requests
	}
	awaited := slices.Concat(signals, requests)
	if len(awaited) == 0 || slices.Contains(mine, m.Signal) {
		return ""
	}
	return "the run waits for " + strings.Join(awaited, " and ") + ": is one of the names misspelt?"
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
			page, err := p.admin.Messages.List(ctx, ref, f)
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

package ui

import (
	"context"
	"iter"
	"net/url"
	"slices"
	"strings"

	"github.com/kagzi/kagzi"
)

// A message is one that the run has got.
type message struct {
	kagzi.MessageInfo // without its payload
	Shown             payload
	Ignored           string // why the run does not read it; empty if it has, or may
	From              kagzi.RunID
	FromStep          string
}

// mostMessages is how many messages the page has.
const mostMessages = 50

// messages fills the run's messages.
func (d *dashboard) messages(ctx context.Context, v *runView) error {
	awaited := awaited(v.Run)
	for m, err := range d.eachMessage(ctx, v.Run.ID, kagzi.MessageFilter{}) {
		if err != nil {
			return err
		}
		if v.More = len(v.Messages) == mostMessages; v.More {
			return nil
		}
		raw := v.Path() + "/raw?" + url.Values{
			"of": {"message"}, "signal": {m.Signal},
			"message": {string(m.ID)},
		}.Encode()
		out := message{MessageInfo: m, Shown: d.sizeOnly(len(m.Payload), raw)}
		if len(m.Payload) <= keptPayload {
			out.Shown = d.payload(m.Payload, raw)
		}
		out.Payload = nil
		if run, step, ok := strings.Cut(m.SentBy, "/"); ok && isRunID(run) {
			out.From, out.FromStep = kagzi.RunID(run), step
		}
		switch {
		case m.ReadBy != "":
		case v.Run.Status.Ended():
			out.Ignored = "the run has ended, and never read it"
		case len(awaited) > 0 && !slices.Contains(awaited, m.Signal):
			out.Ignored = "the run waits for " + strings.Join(awaited, " and ") + ": is one of the names misspelt?"
		}
		v.Messages = append(v.Messages, out)
	}
	return nil
}

// messagePortion is how many messages are read at once, each of which may have 4 MiB.
const messagePortion = 10

// eachMessage returns the messages of a run. The payload of one is gone with the next.
func (d *dashboard) eachMessage(ctx context.Context, ref kagzi.Ref,
	f kagzi.MessageFilter,
) iter.Seq2[kagzi.MessageInfo, error] {
	return func(yield func(kagzi.MessageInfo, error) bool) {
		f.Limit = messagePortion
		for {
			page, err := d.client.Messages(ctx, ref, f)
			if err != nil {
				yield(kagzi.MessageInfo{}, err)
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

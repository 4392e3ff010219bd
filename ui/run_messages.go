package ui

import (
	"context"
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
	all, err := d.client.Messages(ctx, v.Run.ID, kagzi.MessageFilter{Limit: mostMessages + 1})
	if err != nil {
		return err
	}
	if v.More = len(all) > mostMessages; v.More {
		all = all[:mostMessages]
	}
	awaited := awaited(v.Run)
	for _, m := range all {
		raw := v.Path() + "/raw?" + url.Values{"of": {"message"}, "signal": {m.Signal}, "message": {string(m.ID)}}.Encode()
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

// awaited returns the signals that the run waits for.
func awaited(run kagzi.RunInfo) (names []string) {
	for on := range strings.SplitSeq(run.WaitingOn, "; ") {
		if name, ok := strings.CutPrefix(on, "signal "); ok {
			names = append(names, name)
		}
	}
	return names
}

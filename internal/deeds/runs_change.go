package deeds

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/waits"
)

var errNoReader = errors.New("the run is over, so it reads no message")

// SentBy is the header of a message that tells the run who sent it from a form.
const SentBy = "sent-by"

func signal() Deed {
	return Deed{
		Verb: "signal", Object: Run, Past: "sent", Short: "Send a message to a run", Button: "Send",
		Says: []string{
			"Signal stores a message for an active run, which reads it when it waits for a signal of that name and " +
				"key. Until then the message stays unread.",
			"The payload is not checked against the code: a message that the run cannot decode is set aside, and the " +
				"run goes on waiting.",
		},
		Fields: []Field{
			{Name: "name", Flag: "-", Label: "Signal", Hint: "approved", Required: "give the name of the signal"},
			{
				Name: "key", Flag: "for", Label: "Key", Arg: "KEY", Hint: "call-7", Rare: true,
				Help: "What the signal is about, if the code says so with For: approved/call-7 has the key call-7.",
			},
			{
				Name: "payload", Label: "Payload", Kind: JSON, Letter: "p", Hint: `{"approved": true}`,
				Help: "The payload as JSON. Empty: null.",
			},
			{
				Name: "id", Flag: "message-id", Label: "Message ID", Arg: "ID", Hint: "one of its own", Rare: true,
				Help: "The ID of the message: a run stores one message with it, however often it is sent.",
			},
		},
		Look: lookSignal, Do: doSignal,
	}
}

func lookSignal(ctx context.Context, a Asked, v *View) error {
	name, key := v.field("name"), v.field("key")
	if signals := v.Run.WaitingOn.Names(waits.Signal); len(signals) > 0 {
		v.Says = append(v.Says, "The run waits for "+strings.Join(signals, ", ")+", and reads the message at once.")
		name.Value, key.Value, _ = strings.Cut(signals[0], "/")
		for _, w := range signals {
			base, _, _ := strings.Cut(w, "/")
			name.Choices = append(name.Choices, Option{Value: base})
		}
		key.Rare = key.Value == ""
	}
	if v.Run.Status.Ended() {
		v.Refused = errNoReader
	}
	if err := a.Client.CheckSealer(ctx); err != nil {
		v.Refused = err
	}
	return nil
}

func doSignal(ctx context.Context, a Asked) (done Done, err error) {
	if err := a.Client.CheckSealer(ctx); err != nil {
		return done, err
	}
	to := kagzi.DefineSignal[json.RawMessage](a.Values.Get("name"))
	if key := a.Values.Get("key"); key != "" {
		to = to.For(key)
	}
	m := to.With(a.Values.json("payload"))
	if id := a.Values.Get("id"); id != "" {
		m = m.WithID(kagzi.ID(id))
	} else if a.Token != "" {
		m = m.WithID(kagzi.ID(a.Token))
	}
	if a.Token != "" && a.Actor != "" {
		m = m.WithHeaders(kagzi.Headers{SentBy: a.Actor})
	}
	before, look := a.Client.Get(ctx, a.Ref)
	if err := a.Client.Signal(ctx, a.Ref, m, onlyWhy(a)...); err != nil {
		return done, err
	}
	done.Said = fmt.Sprintf("sent %s to %s", to.Name(), a.Called())
	done.Result = map[string]any{"run": a.Ref, "signal": to.Name()}
	if look == nil {
		done.Warning = warnOfSignal(a, before, to.Name())
	}
	return done, nil
}

// warnOfSignal says that the run waits for other signals than the one that it got.
func warnOfSignal(a Asked, before kagzi.RunInfo, name string) string {
	signals := before.WaitingOn.Names(waits.Signal)
	// it may be among those that are not named
	if len(signals) == 0 || slices.Contains(signals, name) || before.WaitingOn.Has(waits.More) {
		return ""
	}
	for i, s := range signals {
		signals[i] = strconv.Quote(s)
	}
	return fmt.Sprintf("%s waits for %s: it reads %q if it waits for that later.", a.Called(),
		strings.Join(signals, " and "), name)
}

func redeliver() Deed {
	return ofMessage(Deed{
		Verb: "redeliver-message", Past: "redelivered", Title: "Redeliver a message to",
		Button: "Redeliver the message",
		Short:  "Give a message that did not decode to its run again",
		Says: []string{"Redeliver-message gives a message that was set aside, because it did not decode, to its run " +
			"again, as if it came now. Deploy code that decodes it before, else it is set aside again."},
		Look: func(_ context.Context, _ Asked, v *View) error {
			if v.Run.Status.Ended() {
				v.Refused = errNoReader
			}
			return nil
		},
	}, admin.Messages.Redeliver)
}

func drop() Deed {
	return ofMessage(Deed{
		Verb: "drop-message", Past: "dropped", Title: "Drop a message of", Button: "Drop the message", Danger: true,
		Short: "Remove a message that a run has not read",
		Says: []string{"Drop-message removes a message that was set aside, because it did not decode, or, while no " +
			"worker executes the run, any that it has not read. A message with the same ID may be sent again."},
	}, admin.Messages.Drop)
}

func ofMessage(d Deed,
	do func(admin.Messages, context.Context, kagzi.Ref, kagzi.ID, ...kagzi.ChangeOption) error,
) Deed {
	d.Object = Run
	d.Fields = []Field{{
		Name: "message", Flag: "-", Label: "Message ID", Required: "the list of the run's messages shows it",
	}}
	d.Do = func(ctx context.Context, a Asked) (Done, error) {
		id := a.Values.Get("message")
		return Done{
			Said:   fmt.Sprintf("%s message %s of %s", d.Past, id, a.Called()),
			Result: map[string]any{"run": a.Ref, "message": id},
		}, do(a.admin().Messages, ctx, a.Ref, kagzi.ID(id), onlyWhy(a)...)
	}
	return d
}

func update() (d Deed) {
	d = many(Deed{
		Verb: "update", Object: Run, Past: "updated",
		Short: "Move waiting runs to another queue, priority, time or version",
		Says: []string{
			"Update changes runs that no worker executes: pending and sleeping ones. What is not named stays as it " +
				"is. Pause stops a run that is being executed, so that it can be updated.",
			"A time is for pending runs, as a run that sleeps is woken by what it waits for. The run's log says what " +
				"was changed, from what to what.",
		},
		Fields: []Field{
			{
				Name: "queue", Flag: "set-queue", Label: "Queue", Arg: "NAME",
				Help: "Workers of the queue with this name claim the run from now on. Its key moves with it.",
			},
			{
				Name: "priority", Flag: "set-priority", Label: "Priority", Kind: Choice,
				Help: "The new priority, from 1, which goes first, to 4.", Choices: priorities("as it is"),
			},
			{
				Name: "version", Flag: "set-version", Label: "Version", Kind: Version,
				Help: "Send the run to handlers of this version, or \"default\" for that of its next worker.",
			},
			{
				Name: "due", Flag: "set-at", Label: "Due", Kind: Future, Hint: "now, 2h, or 2026-10-01 08:00 (UTC)",
				Help: "Make the run due at this time: now, 2h from now, or 2026-10-01T08:00:00Z.",
			},
			{Name: "delay", Flag: "set-delay", NoForm: true, Kind: Duration, Help: "Make the run due after this " +
				"time. 0 is now."},
			{
				Name: "metadata", Flag: "set-metadata", Label: "Tags", Kind: Pairs,
				Help: "Replace all of the run's tags, by one name=value or several.",
			},
			{Name: "metadata-was", Flag: "-", Kind: Hidden},
		},
		Look: lookUpdate,
		Valid: func(a Asked) error {
			switch {
			case a.Values.Has("due") && a.Values.Has("delay"):
				return mistake("{due} and {delay} exclude each other: give one of them")
			case a.Values.Has("priority") && (a.Values.number("priority") < 1 || a.Values.number("priority") > 4):
				return mistake("{priority} is %q: give 1, which goes first, to 4", a.Values.Get("priority"))
			case len(updates(a)) == len(why[admin.UpdateOption](a)):
				return mistake("there is nothing to change: fill in what is to be different")
			}
			return nil
		},
	}, Many{
		Now: "updating",
		To:  []kagzi.Status{kagzi.StatusPending, kagzi.StatusSleeping},
		Ask: []string{"queue", "priority", "version", "due"},
	}, updates, makesNone(admin.Runs.Update), admin.Runs.UpdateAll)
	d.Do = unlessSo(d, func(ctx context.Context, a Asked, before kagzi.RunInfo, n int) (string, error) {
		now, err := updated(ctx, a, before.ID)
		if err != nil || now > n {
			return "", err
		}
		return "was so already: nothing was changed", nil
	})
	return d
}

// updates are the values of an update.
func updates(a Asked) []admin.UpdateOption {
	v, opts := a.Values, why[admin.UpdateOption](a)
	if v.Has("queue") {
		opts = append(opts, kagzi.Queue(v.Get("queue")))
	}
	if v.Has("priority") {
		opts = append(opts, kagzi.Priority(v.number("priority")))
	}
	if after, err := duration.Parse(strings.TrimPrefix(v.Get("due"), "in ")); err == nil {
		opts = append(opts, kagzi.Delay(after))
	} else if v.Get("due") == "now" {
		opts = append(opts, kagzi.Delay(0))
	} else if v.Has("due") {
		at, _ := ParseTime(v.Get("due"), time.Now(), 1, a.Zone)
		opts = append(opts, kagzi.At(at))
	}
	if after, err := duration.Parse(v.Get("delay")); err == nil {
		opts = append(opts, kagzi.Delay(after))
	}
	if v.Get("version") == "default" {
		opts = append(opts, kagzi.DefaultVersion())
	} else if v.Has("version") {
		opts = append(opts, kagzi.Version(v.number("version")))
	}
	if v.retagged() {
		opts = append(opts, v.pairs("metadata"))
	}
	return opts
}

// retagged reports whether the tags are to be replaced: a form sends also those that stay.
func (v Values) retagged() bool {
	is, was := v["metadata"], v["metadata-was"]
	return len(is) > 0 && (len(was) == 0 || lines(is[0]) != lines(was[0]))
}

// lines returns a text of several lines as it was shown: browsers send CRLF.
func lines(s string) string { return strings.TrimRight(strings.ReplaceAll(s, "\r\n", "\n"), "\n") }

func lookUpdate(_ context.Context, _ Asked, v *View) error {
	r := *v.Run
	switch {
	case r.Status.Ended():
		v.Refused = errors.New("the run is over")
	case r.Status == kagzi.StatusRunning:
		v.Refused = errors.New("a worker executes the run: pause it, update it when it is pending, and unpause it")
	}
	v.field("queue").Hint = r.Queue
	v.field("priority").Choices = priorities(fmt.Sprintf("as it is (%d)", r.Priority))
	if r.Version > 0 {
		v.field("version").Hint = strconv.Itoa(r.Version)
	}
	var tags []string
	for _, name := range slices.Sorted(maps.Keys(r.Metadata)) {
		if tags = append(tags, name+"="+r.Metadata[name]); strings.ContainsAny(name, "=\r\n") ||
			strings.ContainsAny(r.Metadata[name], "\r\n") { // an editor of lines cannot show it
			v.omit("metadata", "metadata-was")
		}
	}
	v.field("metadata").Value, v.field("metadata-was").Value = strings.Join(tags, "\n"), strings.Join(tags, "\n")
	if r.Status != kagzi.StatusPending {
		v.omit("due")
	}
	return nil
}

// omit takes fields out of the view.
func (v *View) omit(names ...string) {
	v.Fields = slices.DeleteFunc(v.Fields, func(f Field) bool { return slices.Contains(names, f.Name) })
}

func priorities(now string) []Option {
	return []Option{
		{Label: now},
		{Value: "1", Label: "1, which goes first"},
		{Value: "2", Label: "2"},
		{Value: "3", Label: "3"},
		{Value: "4", Label: "4, which goes last"},
	}
}

// updated counts the updates in a run's log. One that changes nothing is not recorded.
func updated(ctx context.Context, a Asked, run kagzi.RunID) (n int, err error) {
	log, err := a.admin().Runs.Log(ctx, run)
	for _, e := range log {
		if e.Event == "UPDATED" {
			n++
		}
	}
	return n, err
}

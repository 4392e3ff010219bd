package ui

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	durations "github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/ui/internal/web"
)

// talkForms send messages to runs that are not over, and change when and where they go on.
func (p *runForms) talkForms() []web.ChangeForm {
	return []web.ChangeForm{
		p.runForm(Signal, "Signal", p.showSignal, p.signal),
		p.runForm(Update, "Update", p.showUpdate, p.update),
		p.runForm(RedeliverMessage, "Redeliver a message to", showRedeliver,
			func(ctx context.Context, f web.Form, id kagzi.RunID) (web.Answer, error) {
				return web.Answer{Said: "Redelivered."}, p.admin.RedeliverMessage(ctx, id, kagzi.ID(f.Get("message")),
					f.Options()...)
			}),
		p.runForm(DropMessage, "Drop a message of", showDropMessage,
			func(ctx context.Context, f web.Form, id kagzi.RunID) (web.Answer, error) {
				return web.Answer{Said: "Dropped the message."},
					p.admin.DropMessage(ctx, id, kagzi.ID(f.Get("message")), f.Options()...)
			}),
	}
}

// waitsFor returns the signals that a run waits for, as names with their keys.
func waitsFor(r kagzi.RunInfo) (names []string) {
	for wait := range strings.SplitSeq(r.WaitingOn, "; ") {
		if name, ok := strings.CutPrefix(wait, "signal "); ok && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// sentBy is the header of a message that tells the run who sent it from the dashboard.
const sentBy = "sent-by"

func (p *runForms) showSignal(ctx context.Context, _ web.Query, v *web.Dialog) error {
	v.Do = "Send"
	v.Says = []string{"The run reads the message when it waits for a signal of that name and key. Until then it " +
		"stays unread."}
	name := web.Field{Name: "name", Label: "Signal", Sort: "text", Hint: "approved", Required: true}
	key := web.Field{
		Name: "key", Label: "Key", Sort: "text", Hint: "call-7",
		Help: "What the signal is about, if the code says so with For.", Rare: true,
	}
	waits := waitsFor(*v.Run)
	if len(waits) > 0 {
		v.Says[0] = "The run waits for " + strings.Join(waits, ", ") + ", and reads the message at once."
		name.Value, key.Value, _ = strings.Cut(waits[0], "/")
		for _, w := range waits {
			base, _, _ := strings.Cut(w, "/")
			name.Options = append(name.Options, web.Option{Value: base})
		}
		key.Rare = key.Value == ""
	}
	v.Fields = []web.Field{
		name, key,
		{
			Name: "payload", Label: "Payload", Sort: "json", Hint: `{"approved": true}`,
			Help: "JSON. Empty: null. It is not checked against the code: one that the run cannot decode is set " +
				"aside, and the run goes on waiting.",
		},
		{Name: "id", Label: "Message ID", Sort: "text", Hint: "made by this form", Help: "The run stores one message " +
			"with an ID, however often it is sent. Empty: this form has one of its own.", Rare: true},
	}
	if v.Run.Status.Ended() {
		v.Refused = "The run is over, so it reads no message."
	}
	if err := p.client.CheckSealer(ctx); err != nil {
		v.Refused = web.Sentence(err)
	}
	return nil
}

func (p *runForms) signal(ctx context.Context, f web.Form, id kagzi.RunID) (web.Answer, error) {
	if err := p.client.CheckSealer(ctx); err != nil {
		return web.Answer{}, err
	}
	payload := json.RawMessage("null")
	if s := f.Get("payload"); s != "" {
		var err error
		if payload, err = validJSON("payload", s); err != nil {
			return web.Answer{}, err
		}
	}
	signal := kagzi.DefineSignal[json.RawMessage](f.Get("name"))
	if key := f.Get("key"); key != "" {
		signal = signal.For(key)
	}
	m := signal.With(payload)
	if s := f.Get("id"); s != "" {
		m = m.WithID(kagzi.ID(s))
	} else if token := f.Get(web.FormToken); token != "" {
		m = m.WithID(kagzi.ID(token))
	}
	if f.Actor != "" {
		m = m.WithHeaders(kagzi.Headers{sentBy: f.Actor})
	}
	return web.Answer{Said: "Sent " + signal.Name() + "."}, p.client.Signal(ctx, id, m, f.Options()...)
}

// messageField is the field for the ID of a message, to which the list of messages leads.
func messageField(q web.Query) web.Field {
	return web.Field{Name: "message", Label: "Message ID", Sort: "text", Value: q.Get("message"), Required: true}
}

func showRedeliver(_ context.Context, q web.Query, v *web.Dialog) error {
	v.Do, v.Fields = "Redeliver the message", []web.Field{messageField(q)}
	v.Says = []string{"The run gets the message again, as if it came now. If no code that decodes it is deployed, it " +
		"is set aside again."}
	if v.Run.Status.Ended() {
		v.Refused = "The run is over, so it reads no message."
	}
	return nil
}

func showDropMessage(_ context.Context, q web.Query, v *web.Dialog) error {
	v.Do, v.Danger, v.Fields = "Drop the message", true, []web.Field{messageField(q)}
	v.Says = []string{"The message is removed, and the run never reads it. Its sender may send another one with the " +
		"same ID."}
	return nil
}

func (p *runForms) showUpdate(_ context.Context, _ web.Query, v *web.Dialog) error {
	v.Do = "Update the run"
	v.Says = []string{"What is left empty stays as it is. The run's log says what was changed, from what to what."}
	r := *v.Run
	switch {
	case r.Status.Ended():
		v.Refused = "The run is over."
	case r.Status == kagzi.StatusRunning:
		v.Refused = "A worker executes the run. Pause it, update it when it is pending, and unpause it."
	}
	v.Fields = []web.Field{
		{Name: "queue", Label: "Queue", Sort: "text", Hint: r.Queue, Help: "Workers of that queue claim it from now " +
			"on. Its key moves with it."},
		{Name: "priority", Label: "Priority", Sort: "select", Options: priorities(r.Priority)},
		{
			Name: "version", Label: "Version", Sort: "text", Hint: versionText(r.Version),
			Help: "Of the code that executes it, or \"default\" for that of its next worker.",
		},
	}
	if r.Status == kagzi.StatusPending {
		v.Fields = append(v.Fields, web.Field{
			Name: "due", Label: "Due", Sort: "text",
			Hint: "now, 2h, or 2026-10-01 08:00 (UTC)", Help: "When it is due: now, after a time, or at a moment.",
		})
	}
	tags, ok := tagLines(r.Metadata)
	if !ok {
		return nil
	}
	v.Fields = append(v.Fields, web.Field{
		Name: "metadata", Label: "Tags", Sort: "lines", Value: tags,
		Help: "One on each line, as name=value. They replace all that it has.",
	},
		web.Field{Name: "metadata-was", Sort: "hidden", Value: tags})
	return nil
}

func priorities(now int) []web.Option {
	out := []web.Option{{Label: "as it is (" + strconv.Itoa(now) + ")"}}
	for _, p := range []string{"1, which goes first", "2", "3", "4, which goes last"} {
		out = append(out, web.Option{Value: p[:1], Label: p})
	}
	return out
}

// tagLines writes tags for an editor. It reports false if that cannot be.
func tagLines(m kagzi.Metadata) (text string, ok bool) {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if strings.ContainsAny(name, "=\r\n") || strings.ContainsAny(m[name], "\r\n") {
			return "", false
		}
		lines = append(lines, name+"="+m[name])
	}
	return strings.Join(lines, "\n"), true
}

// readTags is the inverse of tagLines.
func readTags(s string) (kagzi.Metadata, error) {
	out := kagzi.Metadata{}
	for line := range strings.Lines(s) {
		if line = strings.TrimRight(line, "\r\n"); strings.TrimSpace(line) == "" {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok || name == "" {
			return nil, web.BadRequest("The tag %q has no value: write it as name=value.", line)
		}
		out[name] = value
	}
	return out, nil
}

func (p *runForms) update(ctx context.Context, f web.Form, id kagzi.RunID) (web.Answer, error) {
	opts, err := updatesOf(f.Query, time.Now())
	if err != nil {
		return web.Answer{}, err
	}
	if len(opts) == 0 {
		return web.Answer{}, web.BadRequest("There is nothing to change: fill in what is to be different.")
	}
	return web.Answer{Said: "Updated."}, p.admin.Update(ctx, id, append(opts, updateOptions(f)...)...)
}

// updateOptions are who and why, as options of an update.
func updateOptions(f web.Form) (opts []admin.UpdateOption) {
	if f.Actor != "" {
		opts = append(opts, kagzi.Actor(f.Actor))
	}
	if f.Reason() != "" {
		opts = append(opts, kagzi.Reason(f.Reason()))
	}
	return opts
}

// updatesOf reads the fields of an update.
func updatesOf(q web.Query, now time.Time) (opts []admin.UpdateOption, err error) {
	if opts, err = updates(q.Get("queue"), q.Get("priority"), q.Get("due"), now); err != nil {
		return nil, err
	}
	if s := q.Get("version"); s == "default" {
		opts = append(opts, kagzi.DefaultVersion())
	} else if s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return nil, web.BadRequest("The version is %q: give a number from 1, or default.", s)
		}
		opts = append(opts, kagzi.Version(n))
	}
	lines := func(name string) string {
		return strings.TrimRight(strings.ReplaceAll(q.Values.Get(name), "\r\n", "\n"), "\n")
	} // browsers send CRLF
	if is := lines("metadata"); q.Values.Has("metadata") && is != lines("metadata-was") {
		tags, err := readTags(is)
		if err != nil {
			return nil, err
		}
		opts = append(opts, tags)
	}
	return opts, nil
}

// future reads a time as a moment, or as its distance after now.
func future(s string, now time.Time) (admin.UpdateOption, error) {
	if s == "now" {
		return kagzi.Delay(0), nil
	}
	if after, err := durations.Parse(strings.TrimPrefix(s, "in ")); err == nil {
		return kagzi.Delay(after), nil
	}
	t, err := past(s, now)
	if err != nil {
		return nil, web.BadRequest("%q is no time: write now, 2h, 2026-10-01, or 2026-10-01 08:00 (UTC).", s)
	}
	return kagzi.At(t), nil
}

// updates reads what an update of one or many runs changes.
func updates(queue, priority, due string, now time.Time) (opts []admin.UpdateOption, err error) {
	if queue != "" {
		opts = append(opts, kagzi.Queue(queue))
	}
	if priority != "" {
		n, err := strconv.Atoi(priority)
		if err != nil {
			return nil, web.BadRequest("The priority is %q: give 1 to 4.", priority)
		}
		opts = append(opts, kagzi.Priority(n))
	}
	if due != "" {
		at, err := future(due, now)
		if err != nil {
			return nil, err
		}
		opts = append(opts, at)
	}
	return opts, nil
}

package alerts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/topic"
)

// A watcher watches a namespace for one call of Run.
type watcher struct {
	cfg      Config
	client   *kagzi.Client // of the namespace that is watched
	admin    *admin.Client
	own      *kagzi.Client // of the namespace of the watch
	ownAdmin *admin.Client
	log      *slog.Logger
	senders  map[string]*sender // by notifier
}

const (
	watchID  = kagzi.ID("watch")
	lookStep = "look"
)

// A message is an alert for one notifier.
type message struct {
	To    string `json:"to"`
	Alert Alert  `json:"alert"`
}

var (
	watchWorkflow  = kagzi.DefineDo[state]("kagzi.alerts.watch", kagzi.RetryPolicy{Forever: true})
	notifyWorkflow = kagzi.DefineDo[message]("kagzi.alerts.notify", kagzi.Timeout(24*time.Hour))
)

// A plan is what follows from a look. It is recorded, so a replay does the same in a process with other notifiers.
type plan struct {
	Next     state     `json:"next"`
	Messages []message `json:"messages,omitempty"`
}

// outages are the checks that fail while the watch cannot go on: watchOutages looks at them.
var outages = []string{"database", "schema", "writable", "pool", "work"}

// keeps reports whether an alert opens for the check.
func (c Config) keeps(check string) bool { return !slices.Contains(c.Ignore, check) }

// watch looks once, sends the alerts that open and close, and continues after a pause.
func (w *watcher) watch(ctx kagzi.Context, s state) error {
	p, err := kagzi.Step(ctx, lookStep, func(ctx context.Context) (plan, error) { return w.plan(ctx, s) },
		kagzi.RetryPolicy{Forever: true, MaxBackoff: max(w.cfg.Every, time.Second)})
	if err != nil {
		return err
	}
	if len(p.Messages) > 0 {
		if err := kagzi.Do(ctx, "send", func(ctx context.Context) error { return w.startAll(ctx, p.Messages) },
			kagzi.RetryPolicy{Forever: true}); err != nil {
			return err
		}
	}
	if err := kagzi.Sleep(ctx, "until the next look", w.cfg.Every); err != nil {
		return err
	}
	return kagzi.Continue(ctx, p.Next)
}

// plan looks, and returns what follows.
func (w *watcher) plan(ctx context.Context, s state) (p plan, err error) {
	seen, err := w.look(ctx, s)
	if err != nil {
		return p, err
	}
	var changed []Alert
	p.Next, changed = s.learn(seen, w.cfg)
	for _, a := range changed {
		for _, to := range slices.Sorted(maps.Keys(w.cfg.Notifiers)) {
			p.Messages = append(p.Messages, message{to, w.complete(a)})
		}
	}
	return p, nil
}

// startAll starts a run for each message, once, and deletes old ones. They are no children of the watch, which never
// ends, and without which a child cannot be deleted.
func (w *watcher) startAll(ctx context.Context, messages []message) error {
	for _, m := range messages {
		_, err := kagzi.Start(ctx, w.own, notifyWorkflow, m, kagzi.ID(shorten(m.To+"/"+m.Alert.Key)),
			kagzi.Group(shorten(m.To+"/"+m.Alert.ID)), kagzi.ReturnAnyInput, kagzi.RejectEnded)
		if err != nil && !errors.Is(err, kagzi.ErrIDTaken) { // an attempt before this one has started it
			return err
		}
	}
	if _, err := w.ownAdmin.Runs.DeleteAll(ctx, kagzi.RunFilter{
		Workflow: notifyWorkflow.Name(), EndedUntil: time.Now().Add(-keepMessages), Limit: 1000,
	}); err != nil {
		w.log.Warn("kagzi: alerts: old messages were not deleted, which is tried again", "error", err)
	}
	return nil
}

// keepMessages is how long messages that were sent are kept.
const keepMessages = 30 * 24 * time.Hour

// shorten returns a name that is short enough for an ID, and still another for another name.
func shorten(name string) string {
	const most = 180
	if len(name) <= most {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:])
}

// complete adds to the alert what is the same for all.
func (w *watcher) complete(a Alert) Alert {
	a.Namespace, a.URL = w.client.Namespace(), w.cfg.URL
	a.ID, a.Key = a.Namespace+"/"+a.ID, a.Namespace+"/"+a.Key
	return a
}

// look reads the health of the namespace, and the events since the last look.
func (w *watcher) look(ctx context.Context, s state) (l look, err error) {
	report, err := w.admin.Health(ctx)
	if err != nil {
		return l, err
	}
	if c := report.Check("database"); report.At.IsZero() || c.Status == health.Unhealthy { // others may be missing
		return l, errors.New("the database does not answer")
	}
	l.At = report.At
	l.Checks = bad(report, func(name string) bool { return w.cfg.keeps(name) && !slices.Contains(outages, name) })
	if w.cfg.Runs {
		l.Failed, l.After, err = w.readFailures(ctx, s, l.At)
	}
	return l, err
}

// readFailures counts the runs that have failed since the last look, or since now at the first one that counts them.
func (w *watcher) readFailures(ctx context.Context, s state, now time.Time) (out []failed, after int64, err error) {
	since := s.RunsSince
	if since.IsZero() {
		since = now
	}
	var found failures
	after = s.After
	for e, err := range topic.Events(ctx, w.client, topic.Runs, s.After) {
		if err != nil && e.Position == 0 {
			return nil, 0, err
		}
		if after = e.Position; err == nil && !e.PublishedAt.Before(since) {
			found.add(e.Payload)
		}
	}
	return found.all(), after, nil
}

// notify sends a message, and tries again until it succeeds or a day is over.
func (w *watcher) notify(ctx kagzi.Context, m message) error {
	return kagzi.Do(ctx, "notify", func(ctx context.Context) error {
		to, ok := w.senders[m.To]
		if !ok {
			return fmt.Errorf("this process has no notifier of the name %q: give all processes the same ones", m.To)
		}
		return to.send(ctx, m.Alert)
	}, kagzi.RetryPolicy{Forever: true, Backoff: firstBackoff, MaxBackoff: longestBackoff})
}

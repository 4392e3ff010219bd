package alerts

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/valid"
)

// An Alert says that something is wrong, or that it is well again. Its JSON is what [Webhook] sends.
type Alert struct {
	// ID is the same when the alert opens, when it closes, and when it opens again. It has the namespace and the Check,
	// with the Status or with the workflow and kind: "default/queues/degraded", "default/runs/order: timeout".
	ID string `json:"id"`
	// Key is another one for each opening and each closing. An alert that is sent twice has the same Key. Of an outage
	// of the database, each process has a Key of its own.
	Key       string `json:"key"`
	Namespace string `json:"namespace"`
	Check     string `json:"check"` // the name of a health.Check, or "runs" for the failures of a workflow
	// Status is Degraded or Unhealthy. A check that becomes Unhealthy opens a second alert, beside that of Degraded.
	Status health.Status `json:"status"`
	Closed bool          `json:"closed"` // it is well again
	Title  string        `json:"title"`  // a line
	// Detail is the finding, and what to do about it. A closed alert has the last one.
	Detail string    `json:"detail,omitempty"`
	Since  time.Time `json:"since"`         // when the trouble was first seen
	At     time.Time `json:"at"`            // when the alert opened or closed
	URL    string    `json:"url,omitempty"` // Config.URL
}

// A Notifier passes alerts on to people.
//
// Notify is called from several goroutines. Its ctx ends after 30 seconds: it should return before. If it returns an
// error or panics, it is called again after a pause, for a day. It may be called again with the same Alert.Key after
// it has returned nil, if the process dies just then.
type Notifier interface {
	Notify(ctx context.Context, a Alert) error
}

// A Func is a Notifier that is a function.
type Func func(ctx context.Context, a Alert) error

// Notify calls f.
func (f Func) Notify(ctx context.Context, a Alert) error { return f(ctx, a) }

// A Config configures [Run].
type Config struct {
	// Notifiers get each alert, by a name of yours of at most 100 bytes. All processes that watch a namespace give the
	// same names: any of them may send a message, and one that lacks the name cannot.
	Notifiers map[string]Notifier

	// Every is the time between two looks. Zero means 15 seconds. After a change, one pause may still have the old
	// length.
	Every time.Duration

	// For is how long a check must be bad before its alert opens, and then well before it closes. Zero means a minute.
	For time.Duration

	// Ignore has names of checks that open no alert, such as "pauses": see docs/health.md.
	Ignore []string

	// Runs opens an alert when a run fails for good: one for each workflow and kind. It closes once no run has failed
	// so for Quiet. It knows only of runs that were started by clients with kagzi.ClientConfig.RunEvents.
	Runs bool

	// Quiet is how long no run may fail before the alert of its workflow and kind closes. Zero means an hour.
	Quiet time.Duration

	// URL is added to each alert, for example that of the dashboard.
	URL string
}

// errNoNotifiers reports a Config without Notifiers.
var errNoNotifiers = errors.New("kagzi: alerts: Config.Notifiers is empty, so no alert would reach anyone: give at " +
	"least alerts.Slog{}")

// validated returns the configuration with its defaults.
func (c Config) validated() (Config, error) {
	if len(c.Notifiers) == 0 {
		return c, errNoNotifiers
	}
	for _, name := range slices.Sorted(maps.Keys(c.Notifiers)) {
		if err := valid.Name("alerts: the name of a notifier", name); err != nil {
			return c, err
		}
		if len(name) > maxName {
			return c, fmt.Errorf("kagzi: alerts: the name of a notifier has %d bytes: at most %d are allowed",
				len(name), maxName)
		}
		n := c.Notifiers[name]
		if err := validated(n); err != nil {
			return c, fmt.Errorf("kagzi: alerts: Config.Notifiers[%q] %w", name, err)
		}
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{{"Every", c.Every}, {"For", c.For}, {"Quiet", c.Quiet}} {
		if d.value < 0 || d.value > 0 && d.value < shortest {
			return c, fmt.Errorf("kagzi: alerts: Config.%s is %v: give at least %v, or zero for the default", d.field,
				d.value, shortest)
		}
		if err := duration.CheckLength("alerts: Config."+d.field, d.value); err != nil {
			return c, err
		}
	}
	c.Every, c.For = cmp.Or(c.Every, 15*time.Second), cmp.Or(c.For, time.Minute)
	c.Quiet = cmp.Or(c.Quiet, time.Hour)
	return c, nil
}

// validated returns what is wrong with a Notifier.
func validated(n Notifier) error {
	if v := reflect.ValueOf(n); n == nil || (v.Kind() == reflect.Pointer || v.Kind() == reflect.Func) && v.IsNil() {
		return errors.New("is nil")
	}
	if v, ok := n.(interface{ validate() error }); ok {
		if err := v.validate(); err != nil {
			return fmt.Errorf("cannot send: %w", err)
		}
	}
	return nil
}

const (
	shortest = 10 * time.Millisecond
	maxName  = 100
)

// Run watches the client's namespace, and sends alerts, until ctx ends: it then returns nil. It returns an error only
// before it begins: if cfg is not valid, client is nil, its pool has only one connection, or its namespace has no room
// for seven bytes more. Log that error.
//
// It blocks: call it in a goroutine. It needs the rights of a worker, two connections of the client's pool at times,
// and two outside of it. While the database is away, it goes on trying. When ctx ends, messages under way have five
// seconds more.
//
// Processes may call it for one namespace at the same time, with the same Config. It is safe for concurrent use.
func Run(ctx context.Context, client *kagzi.Client, cfg Config) error {
	cfg, err := cfg.validated()
	if err != nil {
		return err
	}
	if err := client.Core().Made(); err != nil {
		return failure.Wrap(err, "alerts")
	}
	pool := client.Core().Store.Pool()
	if pool.Config().MaxConns < 2 {
		return errors.New("kagzi: alerts: the pool of the client has one connection: give it at least two")
	}
	log := client.Core().Log
	own, err := kagzi.NewClient(pool, kagzi.ClientConfig{Namespace: client.Namespace() + ownNamespace, Logger: log})
	if err != nil {
		return failure.Wrap(err, "alerts")
	}
	// Without a coordinator: one would keep the events of all namespaces of the database for as long as it is told to.
	// The runs here need none but for a worker that has died, whose runs come back with the end of their leases.
	worker, err := kagzi.NewWorker(own, kagzi.WorkerConfig{
		NoCoordinator: true, LeaseTimeout: time.Minute, DrainTimeout: 5 * time.Second,
	})
	if err != nil {
		return failure.Wrap(err, "alerts")
	}
	w := &watcher{
		cfg: cfg, client: client, admin: admin.New(client), own: own, ownAdmin: admin.New(own), log: log,
		senders: newSenders(cfg),
	}
	kagzi.HandleDo(worker, watchWorkflow, w.watch)
	kagzi.HandleDo(worker, notifyWorkflow, w.notify)
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() { w.watchOutages(ctx) })
	beside.Go(func() { w.keepWatch(ctx) })
	for ctx.Err() == nil {
		if err := worker.Run(ctx); err != nil && ctx.Err() == nil {
			log.Error("kagzi: alerts: the worker has stopped, and is started again", "error", err)
			pause(ctx, cfg.soon())
		}
	}
	return nil
}

// ownNamespace follows the name of the namespace that is watched in that of the watch.
const ownNamespace = ".alerts"

// soon is how long what has failed waits for another try.
func (c Config) soon() time.Duration { return min(c.Every, 15*time.Second) }

// keepWatch starts the watch, and starts it again if it has ended: because an operator ended it, for example. Then it
// goes on with the alerts that were open.
func (w *watcher) keepWatch(ctx context.Context) {
	for ctx.Err() == nil {
		if err := w.startWatch(ctx); err != nil && ctx.Err() == nil {
			w.log.Warn("kagzi: alerts: the watch cannot be started, and is tried again", "error", err)
		}
		pause(ctx, w.cfg.soon())
	}
}

func (w *watcher) startWatch(ctx context.Context) error {
	var s state
	switch last, err := w.own.Get(ctx, watchID); {
	case errors.Is(err, kagzi.ErrNotFound):
	case err != nil:
		return err
	case !last.Status.Ended():
		return nil
	default:
		if s, err = w.stateOf(ctx, last); err != nil {
			return err
		}
	}
	_, err := kagzi.Start(ctx, w.own, watchWorkflow, s, watchID, kagzi.ReturnAnyInput)
	return err
}

// stateOf returns with what the next watch begins: what the last one has found, or began with. It sends what that has
// not sent.
func (w *watcher) stateOf(ctx context.Context, last kagzi.RunInfo) (s state, err error) {
	if json.Unmarshal(last.Input, &s) != nil { // it may be why the watch has failed
		s = state{}
	}
	steps, err := w.own.Steps(ctx, last.ID, kagzi.StepFilter{Steps: []string{lookStep}})
	if err != nil {
		return s, err
	}
	for _, step := range steps {
		var p plan
		if step.Status == kagzi.StatusCompleted && json.Unmarshal(step.Output, &p) == nil {
			return p.Next, w.startAll(ctx, p.Messages)
		}
	}
	return s, nil
}

// pause returns after d, or when ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// Only returns a Notifier that passes on to n the alerts that are as bad as least, or worse: when they open, and when
// they close. least is health.Degraded or health.Unhealthy.
func Only(least health.Status, n Notifier) Notifier { return only{least, n} }

type only struct {
	least health.Status
	to    Notifier
}

func (o only) validate() error {
	if o.least != health.Degraded && o.least != health.Unhealthy {
		return fmt.Errorf("Only has the status %q: give health.Degraded or health.Unhealthy", o.least)
	}
	if err := validated(o.to); err != nil {
		return fmt.Errorf("the Notifier of Only %w", err)
	}
	return nil
}

func (o only) Notify(ctx context.Context, a Alert) error {
	if o.least.Worse(a.Status) {
		return nil
	}
	return o.to.Notify(ctx, a)
}

// describe returns the alert as text of several lines.
func (a Alert) describe() string {
	lines := []string{a.Title}
	if a.Detail != "" {
		lines = append(lines, "", a.Detail)
	}
	lines = append(lines, "", "Namespace: "+a.Namespace, "Since: "+a.Since.UTC().Format(time.RFC1123))
	if a.URL != "" {
		lines = append(lines, a.URL)
	}
	return strings.Join(lines, "\n")
}

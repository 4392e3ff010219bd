package names_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/topic"
)

// A reader compares names as read with names as written.
type reader struct {
	t    *testing.T
	name string
}

// same compares values.
func (r reader) same(what string, got, want any) {
	r.t.Helper()
	if !reflect.DeepEqual(got, want) {
		r.t.Errorf("%s: %s is %q, want %q", r.name, what, got, want)
	}
}

// ok fails the test for an error.
func (r reader) ok(what string, err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatalf("%s: %s: %v", r.name, what, err)
	}
}

// Odd names are read back byte for byte, and filters find their runs.
func TestNamesAreReadBack(t *testing.T) {
	t.Parallel()
	for name, s := range allowed {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Database(t)
			namespace := strings.ReplaceAll(s, ":", "")
			c := kit.NewClientWith(t, db.Pool, kagzi.ClientConfig{Namespace: namespace})
			k, r := &kit.Kit{T: t, Ctx: kit.Context(t), Pool: db.Pool, Client: c}, reader{t, name}
			r.same("the namespace", c.Namespace(), namespace)
			readRuns(k, r, s)
			readSettings(k, r, s)
			readSchedules(k, r, s)
			readEvents(k, r, s)
		})
	}
}

// readRuns has a worker, runs, their messages, their filters and their log.
func readRuns(k *kit.Kit, r reader, s string) {
	wf := kagzi.Define[int, int](s, kagzi.Queue(s))
	sent := strings.ReplaceAll(s, "/", "") // names of signals have no '/'
	signal := kagzi.DefineSignal[int](sent)
	w := kit.NewWorker(k.T, k.Client, kagzi.WorkerConfig{Queue: s, Build: s, Labels: map[string]string{s: s}})
	kagzi.Handle(w, wf, func(ctx kagzi.Context, n int) (int, error) { return kagzi.WaitSignal(ctx, signal) })
	stop := kit.StartWorker(k.T, w)
	keyed := kit.Begin(k, wf, 1, kagzi.ID(s), kagzi.Key(s), kagzi.Metadata{s: s}, kagzi.Headers{s: s})
	grouped := kit.Begin(k, wf, 2, kagzi.Group(s))
	why := []kagzi.ChangeOption{kagzi.Actor(s), kagzi.Reason(s)}
	k.WaitStatus(keyed, kagzi.StatusSleeping, "signal "+sent)
	info := k.InfoOf(kagzi.ID(s))
	r.same("a run", []any{
		info.ID, info.Workflow, info.Queue, info.Key, info.Metadata, info.Headers,
		info.WaitingOn.String(),
	},
		[]any{keyed.ID(), s, s, kagzi.Key(s), kagzi.Metadata{s: s}, kagzi.Headers{s: s}, "signal " + sent})
	r.same("a group", k.InfoOf(grouped.ID()).Group, kagzi.Group(s))
	for field, f := range map[string]kagzi.RunFilter{
		"ID": {ID: kagzi.ID(s)}, "Key": {Key: kagzi.Key(s)}, "Metadata": {Metadata: kagzi.Metadata{s: s}},
		"Key in Queue": {Queue: s, Key: kagzi.Key(s)},
		"WaitingOn":    {WaitingOn: "signal " + sent, Key: kagzi.Key(s)}, "Workflow": {Workflow: s, ID: kagzi.ID(s)},
	} {
		runs, err := k.Client.List(k.Ctx, f)
		r.ok(field, err)
		if len(runs) != 1 || runs[0].ID != keyed.ID() {
			k.T.Errorf("%s: the filter %s finds %d runs", r.name, field, len(runs))
		}
	}
	runs, err := k.Client.List(k.Ctx, kagzi.RunFilter{Group: kagzi.Group(s)})
	r.ok("a group", err)
	r.same("the runs of a group", len(runs), 1)
	counts, err := admin.New(k.Client).Runs.Count(k.Ctx, kagzi.RunFilter{}, admin.ByWorkflow, admin.ByQueue)
	r.ok("counts", err)
	r.same("counts", []any{len(counts), counts[0].Workflow, counts[0].Queue}, []any{1, s, s})
	r.ok("a message", k.Client.Signal(k.Ctx, kagzi.ID(s),
		signal.With(1).WithID(kagzi.ID(s)).WithHeaders(kagzi.Headers{s: s}), why...))
	messages, err := admin.New(k.Client).Messages.List(k.Ctx, keyed, admin.MessageFilter{Signal: sent})
	r.ok("messages", err)
	r.same("a message", []any{messages[0].Signal, messages[0].ID, messages[0].Headers},
		[]any{sent, kagzi.ID(s), kagzi.Headers{s: s}})
	kit.ResultOf(k, keyed)
	r.ok("a cancel", k.Client.Cancel(k.Ctx, grouped, why...))
	log, err := admin.New(k.Client).Runs.Log(k.Ctx, grouped)
	r.ok("a log", err)
	r.same("the log of a run", []any{log[0].Actor, log[0].Reason}, []any{s, s})
	audit, err := admin.New(k.Client).Audit(k.Ctx, admin.AuditFilter{
		Actor: s, Kind: admin.AuditRun,
		Name: string(grouped.ID()),
	})
	r.ok("the audit log", err)
	r.same("the audit log", []any{len(audit), audit[0].Actor, audit[0].Reason, audit[0].Workflow}, []any{1, s, s, s})
	found := kit.Only(k.T, k.Client, admin.WorkerFilter{Queue: s, Workflow: s, Labels: map[string]string{s: s}})
	r.same("a worker", []any{found.Queues, found.Workflows, found.Build, found.Labels},
		[]any{[]string{s}, []string{s}, s, map[string]string{s: s}})
	r.ok("stop", stop())
}

// readSettings has limits, pauses and keys.
func readSettings(k *kit.Kit, r reader, s string) {
	c, why := k.Client, []kagzi.ChangeOption{kagzi.Actor(s), kagzi.Reason(s)}
	r.ok("a queue",
		admin.New(c).Queues.Set(k.Ctx, admin.QueueLimits{
			Queue: s, MaxRunning: 3,
			EachKey: admin.KeyLimits{MaxRunning: 1},
		}, why...))
	r.ok("a key", admin.New(c).Keys.Set(k.Ctx, s, kagzi.Key(s), admin.KeyLimits{MaxRunning: 2}, why...))
	r.ok("a limit", admin.New(c).Limits.Set(k.Ctx, admin.StepLimit{Name: s, MaxRunning: 2}, why...))
	limits, err := admin.New(c).Limits.List(k.Ctx, "", 10)
	r.ok("limits", err)
	r.same("limits", []any{len(limits), limits[0].Name}, []any{1, s})
	queues, err := admin.New(c).Queues.List(k.Ctx)
	r.ok("queues", err)
	r.same("queues", queues[0].Queue, s)
	keys, err := admin.New(c).Keys.List(k.Ctx, admin.KeyFilter{Queue: s, Prefix: s})
	r.ok("keys", err)
	r.same("keys", []any{len(keys), keys[0].Key}, []any{1, s})
	targets := []admin.Target{{Queue: s}, {Workflow: s}, {Workflow: s, Queue: s}, {Queue: s, Key: s}, {Group: s}}
	for _, target := range targets {
		r.ok("a pause", admin.New(c).Pauses.Set(k.Ctx, target, why...))
	}
	pauses, err := admin.New(c).Pauses.List(k.Ctx)
	r.ok("pauses", err)
	r.same("pauses", []any{len(pauses), pauses[0].Reason, pauses[0].Actor}, []any{len(targets), s, s})
	for _, target := range targets {
		r.ok("the end of a pause", admin.New(c).Pauses.End(k.Ctx, target, why...))
	}
	pauses, err = admin.New(c).Pauses.List(k.Ctx)
	r.ok("pauses", err)
	r.same("pauses that have ended", len(pauses), 0)
	r.ok("a deletion", admin.New(c).Limits.Delete(k.Ctx, s, why...))
}

// readSchedules has a schedule and the run that it starts.
func readSchedules(k *kit.Kit, r reader, s string) {
	c := k.Client
	r.ok("a schedule", c.Schedule(k.Ctx, kagzi.Schedule{
		Name: s, Cron: "0 0 1 1 *",
		Run: kagzi.Define[int, int](s).With(1, kagzi.Queue(s), kagzi.Metadata{s: s}),
	}))
	info, err := admin.New(c).Schedules.Get(k.Ctx, s)
	r.ok("a schedule", err)
	r.same("a schedule", []any{info.Name, info.Workflow, info.Queue, info.Metadata},
		[]any{s, s, s, kagzi.Metadata{s: s}})
	all, err := admin.New(c).Schedules.List(k.Ctx, admin.ScheduleFilter{Workflow: s})
	r.ok("schedules", err)
	r.same("schedules", []any{len(all), all[0].Name}, []any{1, s})
	id, err := admin.New(c).Schedules.Trigger(k.Ctx, s, kagzi.Actor(s))
	r.ok("a trigger", err)
	runs, err := c.List(k.Ctx, kagzi.RunFilter{Schedule: s})
	r.ok("the runs of a schedule", err)
	r.same("the runs of a schedule", []any{len(runs), runs[0].ID, runs[0].Schedule}, []any{1, id, s})
	r.ok("a deletion", c.DeleteSchedule(k.Ctx, s))
}

// readEvents has a topic and a consumer.
func readEvents(k *kit.Kit, r reader, s string) {
	c, about := k.Client, topic.Define[int](s)
	consumer := topic.DefineConsumer("consumer", topic.ConsumerConfig{
		Topics: []topic.AnyTopic{about}, Group: s,
		LeastWake: time.Millisecond,
	})
	seen := make(chan topic.Event[int], 10)
	w := kit.NewWorker(k.T, c, kagzi.WorkerConfig{Queue: "events"})
	topic.Consume(w, consumer, func(ctx kagzi.Context, n int) (int, error) {
		events, err := topic.Peek(ctx, "new", about, 1)
		if err != nil || len(events) == 0 {
			return n, err
		}
		seen <- events[0]
		return n + 1, topic.Reserve(ctx, "all", events...)
	})
	stop := kit.StartWorker(k.T, w)
	r.ok("an event", topic.New(c).Publish(k.Ctx, about.With(7).WithID(kagzi.ID(s)).Title(s)))
	e := await.Receive(k.T, seen)
	r.same("a consumed event", []any{e.ID, e.Title, e.Payload}, []any{kagzi.ID(s), s, 7})
	for e, err := range topic.Events(k.Ctx, c, about, 0) {
		r.ok("events", err)
		r.same("an event", []any{e.ID, e.Title}, []any{kagzi.ID(s), s})
	}
	topics, err := admin.New(c).Topics.List(k.Ctx)
	r.ok("topics", err)
	r.same("topics", topics[0].Name, s)
	consumers, err := admin.New(c).Consumers.List(k.Ctx)
	r.ok("consumers", err)
	r.same("a consumer", []any{consumers[0].Group, consumers[0].Topics[0].Topic}, []any{kagzi.Group(s), s})
	r.ok("stop", stop())
}

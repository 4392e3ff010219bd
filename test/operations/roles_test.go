package operations_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/topic"
)

// A cast has a client for each of the roles of one database.
type cast struct {
	db                     *dbtest.DB
	t                      *testing.T
	worker, client, viewer *kagzi.Client
	names                  map[*kagzi.Client]string
}

func newCast(t *testing.T) *cast {
	db := dbtest.Database(t)
	worker, client, viewer := dbtest.Roles(t, db)
	as := func(role string) *pgxpool.Pool { return dbtest.OpenPool(t, db.DSN, dbtest.Setting("role", role)) }
	c := &cast{t: t, db: db}
	c.worker, c.viewer = kit.NewClient(t, as(worker)), kit.NewClient(t, as(viewer))
	c.client = kit.NewClientWith(t, as(client), kagzi.ClientConfig{RunEvents: true})
	c.names = map[*kagzi.Client]string{c.worker: worker, c.client: client, c.viewer: viewer}
	return c
}

// refused checks that a call was refused because c's user lacks a right, and that the error says which statement grants
// it.
func (c *cast) refused(by *kagzi.Client, call string, err error) {
	c.t.Helper()
	if err == nil {
		c.t.Errorf("%s was not refused", call)
		return
	}
	kit.MustContain(c.t, err, `user "`+c.names[by]+`" lacks `, "GRANT ")
	if kagzi.KindOf(err) != kind.Unauthorized {
		c.t.Errorf("%s: kind %s: %v", call, kagzi.KindOf(err), err)
	}
}

var (
	sums     = topic.DefineConsumer("sums", topic.ConsumerConfig{Topics: []topic.AnyTopic{numbers}})
	approval = kagzi.DefineSignal[int]("approval")
	asked    = kagzi.Define[int, int]("asked", kit.NoRetry)
	batched  = kagzi.Define[[]int, int]("batched")
)

// serve starts a worker for the workflows and the consumer. A run of asked with a negative input fails.
func (c *cast) serve() {
	c.t.Helper()
	w := kit.NewWorker(c.t, c.worker, kagzi.WorkerConfig{})
	kagzi.Handle(w, asked, func(ctx kagzi.Context, n int) (int, error) {
		n, err := kagzi.Step(ctx, "ask", func(ctx context.Context) (int, error) {
			if n < 0 {
				return 0, errors.New("no")
			}
			return n, nil
		}, kagzi.Limit("asks"))
		return n, err
	})
	topic.Consume(w, sums, func(ctx kagzi.Context, sum int) (int, error) {
		events, err := topic.Peek(ctx, "new", numbers, 10)
		return sum, errors.Join(err, topic.Reserve(ctx, "new", events...))
	})
	kit.StartWorker(c.t, w)
}

// ended starts a run and returns it when it is over.
func (c *cast) ended(n int) kagzi.RunID {
	c.t.Helper()
	run, err := kagzi.Start(kit.Context(c.t), c.client, asked, n)
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := run.Result(kit.Context(c.t)); (err != nil) != (n < 0) {
		c.t.Fatal(err)
	}
	return run.ID()
}

// A callOf is a call of one method of a Client.
type callOf struct {
	method string
	call   func() error
}

// reading are the methods that a viewer may call, too.
func (c *cast) reading(by *kagzi.Client, id kagzi.RunID, worker string) []callOf {
	ctx := kit.Context(c.t)
	return []callOf{
		{"Get", func() error { return kit.Second(by.Get(ctx, id)) }},
		{"Wait", func() error { return kit.Second(by.Wait(ctx, kagzi.ID("b"))) }}, // cancelled before
		{"List", func() error { return kit.Second(by.List(ctx, kagzi.RunFilter{Payloads: true})) }},
		{"Runs.Count", func() error {
			return kit.Second(admin.New(by).Runs.Count(ctx, kagzi.RunFilter{}, admin.ByStep))
		}},
		{"Steps", func() error { return kit.Second(by.Steps(ctx, id)) }},
		{"Runs.Log", func() error { return kit.Second(admin.New(by).Runs.Log(ctx, id)) }},
		{"Runs.Doubts", func() error { return kit.Second(admin.New(by).Runs.Doubts(ctx, 0)) }},
		{"CheckSealer", func() error { return by.CheckSealer(ctx) }},
		{"Messages.List", func() error {
			return kit.Second(admin.New(by).Messages.List(ctx, id, admin.MessageFilter{}))
		}},
		{"Consumers.List", func() error { return kit.Second(admin.New(by).Consumers.List(ctx)) }},
		{"Topics.List", func() error { return kit.Second(admin.New(by).Topics.List(ctx)) }},
		{"Schedules.Get", func() error { return kit.Second(admin.New(by).Schedules.Get(ctx, "daily")) }},
		{"Schedules.List", func() error {
			return kit.Second(admin.New(by).Schedules.List(ctx, admin.ScheduleFilter{}))
		}},
		{"Schedules.NextFires", func() error { return kit.Second(admin.New(by).Schedules.NextFires(ctx, "daily", 2)) }},
		{"Keys.List", func() error {
			return kit.Second(admin.New(by).Keys.List(ctx, admin.KeyFilter{Queue: "default"}))
		}},
		{"Queues.List", func() error { return kit.Second(admin.New(by).Queues.List(ctx)) }},
		{"Limits.List", func() error { return kit.Second(admin.New(by).Limits.List(ctx, "", 10)) }},
		{"Pauses.List", func() error { return kit.Second(admin.New(by).Pauses.List(ctx)) }},
		{"Audit", func() error { return kit.Second(admin.New(by).Audit(ctx, admin.AuditFilter{})) }},
		{"Latencies", func() error { return kit.Second(admin.New(by).Latencies(ctx)) }},
		{"Outcomes", func() error { return kit.Second(admin.New(by).Outcomes(ctx, time.Hour, 24)) }},
		{"Failures", func() error { return kit.Second(admin.New(by).Failures(ctx, time.Hour)) }},
		{"Stats", func() error { return kit.Second(admin.New(by).Stats(ctx)) }},
		{"Stranded", func() error { return kit.Second(admin.New(by).Stranded(ctx)) }},
		{"Workers.List", func() error {
			_, _, err := admin.New(by).Workers.List(ctx, admin.WorkerFilter{})
			return err
		}},
		{"Workers.Get", func() error { return kit.Second(admin.New(by).Workers.Get(ctx, worker)) }},
		{"Workers.Log", func() error { return kit.Second(admin.New(by).Workers.Log(ctx, worker)) }},
		{"Events", func() error {
			for _, err := range topic.Events(ctx, by, numbers, 0) {
				return err
			}
			return nil
		}},
		{"Find", func() error { return kit.Second(kagzi.Find(ctx, by, asked, id)) }},
		{"Health", func() error {
			report, err := admin.New(by).Health(ctx)
			if check := report.Check("writable"); err == nil && check.Status != health.Healthy {
				err = errors.New(check.Detail)
			}
			return err
		}},
	}
}

// changing are the methods that change something, in an order in which each has something to do.
func (c *cast) changing(by *kagzi.Client, done, failed kagzi.RunID, worker string) []callOf {
	ctx := kit.Context(c.t)
	later := func(id string) kagzi.Call { return asked.With(1, kagzi.ID(id), kagzi.Delay(time.Hour), kagzi.Key("k")) }
	id := kagzi.ID("later")
	only := func(id kagzi.ID) kagzi.RunFilter { return kagzi.RunFilter{ID: id} }
	bulk := func(_ admin.BulkResult, err error) error { return err }
	daily := kagzi.Schedule{Name: "daily", Every: 24 * time.Hour, Run: asked.With(1)}
	return []callOf{
		{"Queues.Set", func() error {
			return admin.New(by).Queues.Set(ctx,
				admin.QueueLimits{Queue: "default", EachKey: admin.KeyLimits{MaxRunning: 2}})
		}},
		{"Keys.Set", func() error {
			return admin.New(by).Keys.Set(ctx, "default", "k", admin.KeyLimits{MaxRunning: 1})
		}},
		{"Queues.Declare", func() error { return admin.New(by).Queues.Declare(ctx, admin.QueueLimits{Queue: "q9"}) }},
		{"Queues.Reset", func() error { return admin.New(by).Queues.Reset(ctx, "q9") }},
		{"Limits.Declare", func() error { return admin.New(by).Limits.Declare(ctx, admin.StepLimit{Name: "asks"}) }},
		{"Limits.Reset", func() error { return admin.New(by).Limits.Reset(ctx, "asks") }},
		{"Limits.Set", func() error {
			return admin.New(by).Limits.Set(ctx, admin.StepLimit{Name: "asks", MaxRunning: 7})
		}},
		{"Start", func() error {
			return kit.Second(kagzi.Start(ctx, by, asked, 1, id, kagzi.Delay(time.Hour), kagzi.Key("k")))
		}},
		{"StartMany", func() error {
			return kit.Second(by.StartMany(ctx, []kagzi.Call{
				later("a"), later("b"), later("c"), later("d"),
				later("e"),
			}))
		}},
		{"StartItem", func() error {
			return kit.Second(kagzi.StartItem(ctx, by, batched, 1, kagzi.Batch{Most: 10, Within: time.Hour}))
		}},
		{"Signal", func() error { return by.Signal(ctx, id, approval.With(1).WithID("m")) }},
		{"Messages.Redeliver", func() error {
			dbtest.Exec(c.t, c.db.Pool, `UPDATE kagzi.signals SET set_aside_at = now(), set_aside = 'no number'`)
			return admin.New(by).Messages.Redeliver(ctx, id, "m")
		}},
		{"Messages.Drop", func() error { return admin.New(by).Messages.Drop(ctx, id, "m") }},
		{"Runs.Update", func() error {
			return admin.New(by).Runs.Update(ctx, id, kagzi.Priority(1), kagzi.Metadata{"a": "b"})
		}},
		{"Runs.UpdateAll", func() error {
			return bulk(admin.New(by).Runs.UpdateAll(ctx, only("a"), kagzi.Queue("other")))
		}},
		{"Runs.Pause", func() error { return admin.New(by).Runs.Pause(ctx, id) }},
		{"Runs.Unpause", func() error { return admin.New(by).Runs.Unpause(ctx, id) }},
		{"Runs.UnpauseAll", func() error {
			dbtest.Exec(c.t, c.db.Pool, `UPDATE kagzi.workflow_runs SET paused_at = now() WHERE external_id = 'later'`)
			return bulk(admin.New(by).Runs.UnpauseAll(ctx, only("later")))
		}},
		{"Pauses.Set", func() error { return admin.New(by).Pauses.Set(ctx, admin.Target{Queue: "other"}) }},
		{"Pauses.End", func() error { return admin.New(by).Pauses.End(ctx, admin.Target{Queue: "other"}) }},
		{"Cancel", func() error { return by.Cancel(ctx, kagzi.ID("a")) }},
		{"Runs.CancelAll", func() error { return bulk(admin.New(by).Runs.CancelAll(ctx, only("b"))) }},
		{"Runs.Terminate", func() error { return admin.New(by).Runs.Terminate(ctx, kagzi.ID("c")) }},
		{"Runs.TerminateAll", func() error { return bulk(admin.New(by).Runs.TerminateAll(ctx, only("d"))) }},
		{"Runs.Resume", func() error { return admin.New(by).Runs.Resume(ctx, failed) }},
		{"Runs.ResumeAll", func() error { return bulk(admin.New(by).Runs.ResumeAll(ctx, only("a"))) }},
		{"Runs.Resolve", func() error {
			for step, left := range map[string]bool{"waits": false, "left": true} { // both ways to resolve
				dbtest.Exec(c.t, c.db.Pool, `INSERT INTO kagzi.step_runs (run_id, step_id, attempt_number, namespace_id,
						status, step_kind, run_attempt, first_attempt, error_kind, error, permanent)
					SELECT run_id, $2, 1, namespace_id, 'RUNNING', 'FUNCTION', 1, 1, 'unknown', 'reset', $3
					FROM kagzi.workflow_runs WHERE external_id = $1
					ON CONFLICT DO NOTHING`, string(id), step, left)
				if err := admin.New(by).Runs.Resolve(ctx, id, step, admin.Happened(1)); err != nil {
					return err
				}
			}
			return nil
		}},
		{"Runs.Restart", func() error { return kit.Second(admin.New(by).Runs.Restart(ctx, done)) }},
		{"Runs.RestartAll", func() error { return bulk(admin.New(by).Runs.RestartAll(ctx, only("c"))) }},
		{"Runs.Fork", func() error { return kit.Second(admin.New(by).Runs.Fork(ctx, done, "ask")) }},
		{"Runs.ForkAll", func() error {
			return bulk(admin.New(by).Runs.ForkAll(ctx, kagzi.RunFilter{IDs: []kagzi.RunID{done}}, "ask"))
		}},
		{"Publish", func() error { return topic.New(by).Publish(ctx, numbers.With(1).WithID("bad")) }},
		{"PublishMany", func() error {
			return topic.New(by).PublishMany(ctx, []topic.NewEvent{numbers.With(2), numbers.With(3)})
		}},
		{"Trigger", func() error { return topic.New(by).Trigger(ctx, sums) }},
		{"Consumers.Skip", func() error { return admin.New(by).Consumers.Skip(ctx, sums, numbers, "bad") }},
		{"Schedule", func() error { return by.Schedule(ctx, daily) }},
		{"Schedules.Pause", func() error { return admin.New(by).Schedules.Pause(ctx, "daily") }},
		{"Schedules.Resume", func() error { return admin.New(by).Schedules.Resume(ctx, "daily") }},
		{"Schedules.Trigger", func() error { return kit.Second(admin.New(by).Schedules.Trigger(ctx, "daily")) }},
		{"Schedules.Backfill", func() error {
			return kit.Second(admin.New(by).Schedules.Backfill(ctx, "daily", time.Now().Add(-50*time.Hour),
				time.Now().Add(-time.Hour)))
		}},
		{"Runs.Delete", func() error { return admin.New(by).Runs.Delete(ctx, done) }},
		{"Runs.DeleteAll", func() error { return bulk(admin.New(by).Runs.DeleteAll(ctx, only("d"))) }},
		{"Workers.Drain", func() error { return admin.New(by).Workers.Drain(ctx, worker) }},
		{"Workers.DrainQueue", func() error { return kit.Second(admin.New(by).Workers.DrainQueue(ctx, "default")) }},
		{"Workers.ForceOffline", func() error { return admin.New(by).Workers.ForceOffline(ctx, worker) }},
	}
}

// removing are the methods that delete what those before have made. The order is that of the calls.
func (c *cast) removing(by *kagzi.Client) []callOf {
	ctx := kit.Context(c.t)
	return []callOf{
		{"Limits.Delete", func() error { return admin.New(by).Limits.Delete(ctx, "asks") }},
		{"Consumers.Delete", func() error { return admin.New(by).Consumers.Delete(ctx, sums) }},
		{"DeleteSchedule", func() error { return by.DeleteSchedule(ctx, "daily") }},
	}
}

// withoutDatabase are the methods that no right concerns.
var withoutDatabase = []string{"Liveness", "Readiness", "Workers.Local", "Namespace"}

// A client's user may call every method of a Client, and a viewer's user those that read. Every other call is refused:
// the error says what is missing, and that trying again is of no use.
func TestEveryCallHasTheRightsOfItsRole(t *testing.T) {
	t.Parallel()
	c := newCast(t)
	must(t, admin.New(c.worker).Limits.Set(kit.Context(t), admin.StepLimit{Name: "asks", MaxRunning: 5}))
	c.serve()
	done, failed := c.ended(1), c.ended(-1)
	worker := kit.Only(t, c.worker, admin.WorkerFilter{})
	called := map[string]bool{}
	for _, name := range withoutDatabase {
		called[name] = true
	}
	each := func(calls []callOf, check func(callOf)) {
		for _, call := range calls {
			called[call.method] = true
			check(call)
		}
	}
	works := func(call callOf) {
		if err := call.call(); err != nil {
			t.Errorf("%s: %v", call.method, err)
		}
	}
	tried := map[string]func() error{}
	for _, call := range append(c.changing(c.viewer, done, failed, worker.ID), c.removing(c.viewer)...) {
		tried[call.method] = call.call
	}
	changes := func(call callOf) { // the viewer's call has something to change, too
		c.refused(c.viewer, call.method, tried[call.method]())
		works(call)
	}
	each(c.changing(c.client, done, failed, worker.ID), changes)
	each(c.reading(c.client, failed, worker.ID), works)
	each(c.reading(c.viewer, failed, worker.ID), works)
	each(c.removing(c.client), changes)
	called["Core"] = true // is for Kagzi's own packages
	for name := range kit.Methods(c.client) {
		if !called[name] {
			t.Errorf("no role was tried for %s", name)
		}
	}
}

// Who lacks the rights of a worker is told so by Run, at once. It does not wait as it does for a database that is away.
func TestOnlyAWorkersUserExecutes(t *testing.T) {
	t.Parallel()
	c := newCast(t)
	for _, by := range []*kagzi.Client{c.client, c.viewer} {
		w := kit.NewWorker(t, by, kagzi.WorkerConfig{})
		kagzi.Handle(w, kit.Noop, kit.Odd)
		c.refused(by, "Worker.Run", w.Run(kit.Context(t)))
		c.refused(by, "Coordinator.Run", kit.NewCoordinator(t, by, kagzi.CoordinatorConfig{}).Run(kit.Context(t)))
	}
	report, err := admin.New(c.client).Health(kit.Context(t))
	if check := report.Check("writable"); err != nil || check.Status != health.Unhealthy ||
		!strings.Contains(check.Detail, "kagzi.consumers") && !strings.Contains(check.Detail, "the tables") {
		t.Errorf("a client's user that has tried to be a worker is %s: %s, %v", check.Status, check.Detail, err)
	}
}

// Only the owner changes the schema.
func TestOnlyTheOwnerMigrates(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	worker, client, viewer := dbtest.Roles(t, db)
	for _, role := range []string{worker, client, viewer} {
		pool := dbtest.OpenPool(t, db.DSN, dbtest.Setting("role", role))
		if err := kagzi.Migrate(kit.Context(t), pool); err != nil { // the schema is current
			t.Errorf("%s: %v", role, err)
		}
		for _, sql := range []string{
			`CREATE TABLE kagzi.mine ()`, `ALTER TABLE kagzi.limits ADD mine int`,
			`DROP TABLE kagzi.limits`, `UPDATE kagzi.schema_migrations SET oldest_program = 99`,
			`TRUNCATE kagzi.workflow_runs`,
		} {
			_, err := pool.Exec(t.Context(), sql)
			if pe, ok := errors.AsType[*pgconn.PgError](err); !ok || pe.Code != "42501" {
				t.Errorf("%s, %s: %v", role, sql, err)
			}
		}
	}
	// A migration is missing: the user is told who has to call Migrate.
	dbtest.Exec(t, db.Pool, `DELETE FROM kagzi.schema_migrations WHERE version_id > 0`)
	err := kagzi.Migrate(kit.Context(t), dbtest.OpenPool(t, db.DSN, dbtest.Setting("role", client)))
	kit.MustContain(t, err, `user "`+client+`" may not change the tables of schema kagzi, which belong to `,
		"call Migrate as ")
	if kagzi.KindOf(err) != kind.Unauthorized {
		t.Errorf("kind %s: %v", kagzi.KindOf(err), err)
	}
}

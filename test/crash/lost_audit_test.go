//go:build unix

package crash_test

import (
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/topic"
)

// The statement that writes an entry of the audit log is lost, or the answer to it, or that to its commit: the change
// is made, and is in the log once.
func TestLostAnswersToAuditedChanges(t *testing.T) {
	t.Parallel()
	const entry = "INSERT INTO kagzi.audit_log"
	wf := kagzi.Define[int, int]("report")
	nightly := kagzi.Schedule{Name: "nightly", Every: time.Hour, Run: wf.With(1)}
	approved := kagzi.DefineSignal[int]("approved")
	mails := topic.Define[int]("mails")
	reader := topic.DefineConsumer("reader", topic.ConsumerConfig{Topics: []topic.AnyTopic{mails}})
	serveReader := func(k *kit.Kit) (stop func()) { // its worker registers the consumer
		w := kit.NewWorker(k.T, k.Client, kagzi.WorkerConfig{Queue: "mail"})
		topic.Consume(w, reader, func(kagzi.Context, int) (int, error) { return 0, nil })
		stop = kit.StartLocal(k.T, w)
		await.True(k.T, "the consumer is registered", func() bool {
			return k.Count(`SELECT count(*) FROM kagzi.consumers`) == 1
		})
		return stop
	}
	target, day := admin.Target{Queue: "q"}, 24*time.Hour
	for name, do := range map[string]func(k *kit.Kit, c *kagzi.Client, lose func()) error{
		"Queues.Set": func(k *kit.Kit, c *kagzi.Client, lose func()) error {
			lose()
			return admin.New(c).Queues.Set(k.Ctx, admin.QueueLimits{Queue: "q", MaxRunning: 1}, kagzi.Actor("ada"))
		},
		"Keys.Set": func(k *kit.Kit, c *kagzi.Client, lose func()) error {
			lose()
			return admin.New(c).Keys.Set(k.Ctx, "q", "acme", admin.KeyLimits{MaxRunning: 1}, kagzi.Actor("ada"))
		},
		"Limits.Set": func(k *kit.Kit, c *kagzi.Client, lose func()) error {
			lose()
			return admin.New(c).Limits.Set(k.Ctx, admin.StepLimit{Name: "api", MaxRunning: 1}, kagzi.Actor("ada"))
		},
		"Limits.Delete": func(k *kit.Kit, c *kagzi.Client, lose func()) error {
			if err := admin.New(k.Client).Limits.Set(k.Ctx, admin.StepLimit{Name: "api", MaxRunning: 1}); err != nil {
				return err
			}
			lose()
			return admin.New(c).Limits.Delete(k.Ctx, "api", kagzi.Actor("ada"))
		},
		"Consumers.Skip": func(k *kit.Kit, c *kagzi.Client, lose func()) error {
			serveReader(k)
			if err := topic.New(k.Client).Publish(k.Ctx, mails.With(1).WithID("mail-1")); err != nil {
				return err
			}
			lose()
			return admin.New(c).Consumers.Skip(k.Ctx, reader, mails, "mail-1", kagzi.Actor("ada"))
		},
		"Trigger": func(k *kit.Kit, c *kagzi.Client, lose func()) error {
			serveReader(k)
			lose()
			return topic.New(c).Trigger(k.Ctx, reader, kagzi.Actor("ada"))
		},
		"Consumers.Delete": func(k *kit.Kit, c *kagzi.Client, lose func()) error {
			serveReader(k)()
			lose()
			return admin.New(c).Consumers.Delete(k.Ctx, reader, kagzi.Actor("ada"))
		},
		"Pauses.Set": func(k *kit.Kit, c *kagzi.Client, lose func()) error {
			lose()
			return admin.New(c).Pauses.Set(k.Ctx, target, kagzi.Actor("ada"))
		},
		"Pauses.End": func(k *kit.Kit, c *kagzi.Client, lose func()) error {
			if err := admin.New(k.Client).Pauses.Set(k.Ctx, target); err != nil {
				return err
			}
			lose()
			return admin.New(c).Pauses.End(k.Ctx, target, kagzi.Actor("ada"))
		},
		"Schedule": func(k *kit.Kit, c *kagzi.Client, lose func()) error {
			lose()
			return c.Schedule(k.Ctx, nightly, kagzi.Actor("ada"))
		},
		"Schedules.Trigger": func(k *kit.Kit, c *kagzi.Client, lose func()) error {
			if err := k.Client.Schedule(k.Ctx, nightly); err != nil {
				return err
			}
			lose()
			_, err := admin.New(c).Schedules.Trigger(k.Ctx, "nightly", kagzi.Actor("ada"))
			return err
		},
		"Schedules.Backfill": func(k *kit.Kit, c *kagzi.Client, lose func()) error {
			if err := k.Client.Schedule(k.Ctx, nightly); err != nil {
				return err
			}
			lose()
			_, err := admin.New(c).Schedules.Backfill(k.Ctx, "nightly", time.Now().Add(-2*day), time.Now().Add(-day),
				kagzi.Actor("ada"))
			return err
		},
		"DeleteSchedule": func(k *kit.Kit, c *kagzi.Client, lose func()) error {
			if err := k.Client.Schedule(k.Ctx, nightly); err != nil {
				return err
			}
			lose()
			return c.DeleteSchedule(k.Ctx, "nightly", kagzi.Actor("ada"))
		},
		"Signal": func(k *kit.Kit, c *kagzi.Client, lose func()) error {
			run := kit.Begin(k, kit.Noop, 1)
			lose()
			return c.Signal(k.Ctx, run, approved.With(1), kagzi.Actor("ada"))
		},
		"Cancel": func(k *kit.Kit, c *kagzi.Client, lose func()) error {
			run := kit.Begin(k, kit.Noop, 1)
			lose()
			return c.Cancel(k.Ctx, run, kagzi.Actor("ada"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachLossPoint(t, map[string]lossPoint{"Write": executions(entry, 1), "Commit": commitsOf(entry, 1)},
				func(t *testing.T, k *kit.Kit, l *kit.Lossy, lose func() *pgproxy.Drop) {
					var drop *pgproxy.Drop
					if err := do(k, l.Client(t, 2), func() { drop = lose() }); err != nil {
						t.Fatal(err)
					}
					await.Receive(t, drop.Done())
					entries, err := admin.New(k.Client).Audit(k.Ctx, admin.AuditFilter{Actor: "ada"})
					if err != nil || len(entries) != 1 {
						t.Errorf("entries %+v, %v", entries, err)
					}
				})
		})
	}
}

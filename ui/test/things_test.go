package test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/topic"
	"github.com/kagzi/kagzi/ui"
)

// A wait for a signal with a key fills the key in, and a message for another key is left unread.
func TestSignalWithAKey(t *testing.T) {
	k, tb := begin(t, ui.Config{Authorize: everybody})
	run := serveKeyed(k)
	tb.open(path("runs", string(run.ID())))
	tb.dialog("/signal")
	if key := eval[string](tb, `document.querySelector("#dialog [name=key]").value`); key != "call-7" {
		t.Errorf("the key is %q", key)
	}
	tb.enter("key", "call-8", "payload", `"wrong"`)
	tb.sends("Sent answer/call-8")
	tb.says("#messages", "unread")
	if info := k.InfoOf(run); info.Status != kagzi.StatusSleeping {
		t.Errorf("the message for another key has made the run %s", info.Status)
	}
	tb.change("/signal", "Sent answer/call-7", "payload", `"right"`)
	if got := kit.ResultOf(k, run); got != "right" {
		t.Errorf("the run has read %q", got)
	}
}

// serveKeyed returns a run that waits for the signal answer with the key call-7.
func serveKeyed(k *kit.Kit) *kagzi.Run[string] {
	answer := kagzi.DefineSignal[string]("answer")
	wf := kagzi.Define[string, string]("calls")
	kit.Serve(k, wf, func(ctx kagzi.Context, _ string) (string, error) {
		return kagzi.WaitSignal(ctx, answer.For("call-7"))
	})
	run := kit.Begin(k, wf, "x")
	k.WaitStatus(run, kagzi.StatusSleeping)
	return run
}

func TestChangesOfKeysAndQueues(t *testing.T) {
	k, tb := begin(t, ui.Config{Authorize: everybody})
	tb.open("/limits")
	tb.change("/limits/key", "Key acme of queue office: at most 2 running", "queue", "office", "key",
		"acme", "most", "2", "weight", "3")
	keys, err := admin.New(k.Client).Keys.List(k.Ctx, admin.KeyFilter{Queue: "office", Order: admin.ByKey})
	if err != nil || len(keys) != 1 || keys[0].Limits.MaxRunning != 2 || keys[0].Limits.Weight != 3 {
		t.Errorf("the keys are %+v, %v", keys, err)
	}
	tb.open("/queues/office")
	tb.change("key=acme&queue=office", "Key acme of queue office", "most", "5") // the menu of the key's row
	tb.open("/queues/office")
	tb.change("pause?key=acme&queue=office", "Paused", because...)
	tb.open("/queues/office")
	tb.says("#queue-state .notice", "Key acme of queue office is paused")
	tb.says("#key-acme", "Paused")
	tb.change("/limits/queue?queue=office", "Queue office: ", "most", "4", "rate", "10/s", "burst", "2",
		"key-most", "1")
	queues, err := admin.New(k.Client).Queues.List(k.Ctx)
	if err != nil || len(queues) != 1 || queues[0].MaxRunning != 4 || queues[0].Rate.Burst != 2 ||
		queues[0].EachKey.MaxRunning != 1 {
		t.Errorf("the queues are %+v, %v", queues, err)
	}
	if keys, err = admin.New(k.Client).Keys.List(k.Ctx,
		admin.KeyFilter{Queue: "office", Order: admin.ByKey}); err != nil ||
		len(keys) != 1 || keys[0].Limits.MaxRunning != 5 {
		t.Errorf("the keys are %+v, %v", keys, err)
	}
	tb.open("/queues/office")
	tb.change("/limits/queue?queue=office", "Queue office: ", "most", "", "rate", "", "burst", "",
		"key-most", "")
	if queues, err = admin.New(k.Client).Queues.List(k.Ctx); err != nil || len(queues) != 0 {
		t.Errorf("without limits the queues are %+v, %v", queues, err)
	}
}

func TestChangesOfConsumers(t *testing.T) {
	k, tb := begin(t, ui.Config{Authorize: everybody})
	runs := serveSorter(k)
	await.Receive(t, runs) // it has seen the event, and left it
	tb.open("/consumers/sorter")
	tb.change("/trigger", "Triggered sorter")
	await.Receive(t, runs)
	tb.open("/consumers/sorter")
	tb.change("/skip", "Skipped the event", "topic", "mail", "event", "m1")
	if all, err := admin.New(k.Client).Consumers.List(k.Ctx); err != nil || len(all) != 1 ||
		all[0].Topics[0].Pending != 0 {
		t.Errorf("the consumers are %+v, %v", all, err)
	}
	tb.open("/consumers/sorter")
	tb.change("/delete", "Deleted sorter")
	if all, err := admin.New(k.Client).Consumers.List(k.Ctx); err != nil || len(all) != 0 {
		t.Errorf("the consumers are %+v, %v", all, err)
	}
}

// serveSorter serves a consumer that takes no event, and publishes one. The channel has its runs.
func serveSorter(k *kit.Kit) <-chan struct{} {
	mail := topic.Define[string]("mail")
	sorter := topic.DefineConsumer("sorter", topic.ConsumerConfig{Topics: []topic.AnyTopic{mail}})
	w := kit.NewWorker(k.T, k.Client, kagzi.WorkerConfig{})
	runs := make(chan struct{}, 100)
	topic.Consume(w, sorter, func(_ kagzi.Context, n int) (int, error) { runs <- struct{}{}; return n + 1, nil })
	kit.StartWorker(k.T, w)
	if err := topic.New(k.Client).Publish(k.Ctx, mail.With("x").WithID("m1")); err != nil {
		k.T.Fatal(err)
	}
	return runs
}

// serveQueue starts a worker of a queue, and returns its ID and its end.
func serveQueue(k *kit.Kit, queue string) (id string, done <-chan error) {
	k.T.Helper()
	w := kit.NewWorker(k.T, k.Client, kagzi.WorkerConfig{Queue: queue})
	kagzi.Handle(w, idle, func(kagzi.Context, string) (string, error) { return "", nil })
	done = kit.RunWorker(k.T, w)
	await.True(k.T, "the worker is online", func() bool {
		page, _, err := admin.New(k.Client).Workers.List(k.Ctx,
			admin.WorkerFilter{Queue: queue, Status: []string{"ONLINE"}})
		if len(page) == 1 {
			id = page[0].ID
		}
		return err == nil && id != ""
	})
	return id, done
}

func TestDrainOfAQueueAndForceOffline(t *testing.T) {
	k, tb := begin(t, ui.Config{Authorize: everybody})
	_, drained := serveQueue(k, "office")
	tb.open("/queues/office")
	tb.change("/workers/drain?queue=office", "Asked 1 worker of queue office to drain")
	if err := await.Receive(t, drained); err != nil {
		t.Error(err)
	}
	id, _ := serveQueue(k, "side")
	tb.open(path("workers", id))
	tb.change("/force-offline", " is offline")
	tb.open(path("workers", id))
	log, err := admin.New(k.Client).Workers.Log(k.Ctx, id)
	if err != nil || !slices.ContainsFunc(log, func(e admin.LogEntry) bool { return e.Reason == "forced offline" }) {
		t.Errorf("the worker's log is %+v, %v", log, err)
	}
}

// A visitor who may only read is told so, and finds no button.
func TestViewer(t *testing.T) {
	k, tb := begin(t, ui.Config{Authorize: func(_ *http.Request, a ui.Action) (string, error) {
		if a.Changes() {
			return "", http.ErrNotSupported
		}
		return actor, nil
	}})
	run := kit.Begin(k, idle, "x", kagzi.Delay(time.Hour))
	for _, page := range []string{"/", "/runs", path("runs", string(run.ID())), "/limits"} {
		tb.open(page)
		tb.says("footer", "You may look, and change nothing here.")
		if n := eval[int](tb,
			`document.querySelectorAll("#main [data-dialog], #main form[method=post] button").length`); n != 0 {
			t.Errorf("%s has %d buttons", page, n)
		}
	}
}

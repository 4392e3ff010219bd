package cli_test

import (
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/cli"
	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/topic"
)

func TestSchedules(t *testing.T) {
	k, s := newShell(t)
	s.run("schedules list").ok().says("There are no schedules.")
	s.run("schedules next --json").ok().prints("[]")
	k.Schedule(kagzi.Schedule{
		Name: "nightly", Run: approve.With(1, kagzi.Queue("reports")), Cron: "0 3 * * *",
		TimeZone: "Europe/Berlin",
	})
	k.Schedule(kagzi.Schedule{Name: "often", Run: checkout.With(1), Every: time.Minute})
	s.run("schedules list").ok().prints("nightly", "0 3 * * * Europe/Berlin", "reports", "often", "every 1m", "ok")
	s.run("schedules list --workflow approve").ok().prints("nightly").omits("often")
	all := jsonOf[[]admin.ScheduleInfo](s.run("schedules list --json").ok())
	if len(all) != 2 || all[1].Every != time.Minute {
		t.Errorf("the schedules are %+v", all)
	}
	next := s.run("schedules next --until 7d").ok().prints("nightly", "often", "more times, the last")
	if n := strings.Count(next.out, "nightly"); n != 7 {
		t.Errorf("nightly has %d ticks in a week, want 7:\n%s", n, next.out)
	}
	fires := jsonOf[[]fire](s.run("schedules next often --until 2h --each --json").ok())
	if n := len(fires); n < 119 || n > 121 {
		t.Errorf("often has %d ticks in two hours", n)
	}
	id := strings.TrimSpace(s.run("schedules trigger nightly").ok().out)
	if info := k.InfoOf(kagzi.RunID(id)); info.Schedule != "nightly" {
		t.Errorf("the run is %+v", info)
	}
	s.run("schedules trigger nightly --unless-active").exits(1)
	s.run("schedules get nightly").ok().prints("Next ticks", id, "Europe/Berlin")
	s.run("runs list --schedule nightly").ok().prints(id)
	s.run("schedules pause nightly").ok().prints("paused nightly")
	s.run("schedules list").ok().prints("paused")
	s.run("schedules next nightly").ok().prints("paused").omits("paused;")
	if got := s.run("schedules get often").ok().out; !strings.Contains(got, "Last tick") ||
		strings.Count(got[strings.Index(got, "Last tick"):strings.Index(got, "Next ticks")], "20") > 0 {
		t.Errorf("a tick that never was is shown\n%s", got)
	}
	s.run("schedules resume nightly").ok()
	s.run("schedules backfill nightly --from 3d").ok().prints("started 3 runs of nightly")
	s.run("schedules delete nightly").exits(2).says("give --yes")
	s.terminal, s.in = 100, "n\n"
	s.run("schedules delete nightly").ok().says("Delete the schedule nightly? [y/N]", "Nothing was changed.")
	s.terminal = 0
	s.run("schedules delete nightly --yes").ok().prints("deleted nightly")
	s.run("schedules delete nightly --yes").exits(3).says("kagzi schedules list shows the schedules")
	for _, verb := range []string{"get", "pause", "resume", "trigger", "next"} {
		s.run("schedules " + verb + " nightly").exits(3).says("kagzi schedules list shows the schedules")
	}
}

func TestWorkers(t *testing.T) {
	k, s := newShell(t)
	s.run("workers list").ok().says("No worker matches.")
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{
		Queue: "shop", Build: "v1.4.2",
		Labels: map[string]string{"region": "eu"},
	})
	kagzi.Handle(w, approve, func(kagzi.Context, int) (string, error) { return "", nil })
	kit.StartWorker(t, w)
	await.True(t, "the worker is registered", func() bool { return s.run("workers list").ok().out != "" })
	id := kit.Only(t, k.Client, admin.WorkerFilter{}).ID
	s.run("workers list --queue shop --label region=eu --workflow approve").ok().prints(id, "ONLINE", "v1.4.2")
	s.run("workers list --label region=us").ok().omits(id)
	s.run("workers get", id).ok().prints("approve/1", "region=eu", "STARTED")
	s.run("workers log", id).ok().prints("STARTED")
	if all := jsonOf[[]admin.WorkerInfo](s.run("workers list --json").ok()); len(all) != 1 || all[0].ID != id {
		t.Errorf("the workers are %+v", all)
	}
	s.run("workers get nope").exits(3)
	s.terminal, s.in = 100, "n\n"
	s.run("drain --queue shop").ok().says("Drain the 1 worker of queue shop?", "Nothing was changed.")
	s.terminal = 0
	s.run("drain --queue shop --yes").ok().prints("asked 1 worker of queue shop to drain")
	await.True(t, "the worker is offline", func() bool { return s.run("workers list --status offline").ok().out != "" })
	s.run("workers list").ok().omits(id)
	s.run("workers list --all").ok().prints(id)
	s.run("workers force-offline", id).ok()
	s.run("workers drain", id).ok()
}

func TestSettingALimitKeepsTheOthers(t *testing.T) {
	k, s := newShell(t)
	s.run("queues list").ok().says("kagzi queues set gives it some")
	s.run("queues set shop --max-running 50 --rate 10/s --burst 20").ok()
	s.run("queues set shop --key-max-running 2 --key-rate 100/m --hold").ok().prints("at most 50 running, rate 10/s " +
		"burst 20, each key at most 2 running, 100/m, hold yes")
	s.run("queues set shop --max-running 0").ok().prints("any number running, rate 10/s burst 20")
	s.run("queues set shop --rate 0").ok().prints("rate -")
	s.run("queues set shop --burst 3").exits(2).says("--burst needs a rate")
	queues := jsonOf[[]admin.QueueInfo](s.run("queues list --json").ok())
	if len(queues) != 1 || queues[0].EachKey.MaxRunning != 2 || !queues[0].Hold {
		t.Errorf("the queues are %+v", queues)
	}
	s.run("queues list").ok().prints("shop", "2 running, 100/m", "yes")
	s.run("queues set shop --clear").ok()
	s.run("queues list --json").ok().prints("[]")

	s.run("keys set tenant-7 --queue shop --max-running 5 --rate 2/s").ok()
	s.run("keys set tenant-7 --queue shop --weight 3").ok().prints("5 running, 2/s, weight 3")
	s.run("keys list --queue shop").ok().prints("tenant-7", "5 running, 2/s, weight 3")
	s.run("keys list --queue shop --order longest-waiting").ok()
	if keys := jsonOf[[]admin.KeyInfo](s.run("keys list --queue shop --all --json").ok()); len(keys) != 1 ||
		keys[0].Limits.Weight != 3 {
		t.Errorf("the keys are %+v", keys)
	}
	s.run("keys list --groups").ok().says("No group matches.")
	s.run("keys set tenant-7 --queue shop --clear").ok().prints("key tenant-7 of queue shop: no limits of its own")

	s.run("limits list").ok().says("kagzi limits set makes one")
	s.run("limits set openai --rate 10/s --max-running 4").ok()
	s.run("limits set openai --honor-retry-after").ok().prints("rate 10/s, at most 4 at once")
	s.run("limits list").ok().prints("openai", "10/s", "0/4", "honored")
	s.run("limits delete openai").ok()
	s.run("limits delete openai").exits(3).says("kagzi limits list shows the limits")
	if n := k.Count(`SELECT count(*) FROM kagzi.limits`); n != 0 {
		t.Errorf("%d limits are left", n)
	}
}

func TestPausesOfEveryTarget(t *testing.T) {
	_, s := newShell(t)
	for flags, text := range map[string]string{
		"--all": "all runs", "--queue a": "queue a", "--workflow b": "workflow b",
		"--queue a --workflow b": "workflow b in queue a",
		"--queue a --key c":      "key c of queue a", "--group d": "group d",
	} {
		s.run("pause " + flags + " --park --actor ada").ok().prints("paused " + text)
		s.run("pauses").ok().prints(text, "ada", "yes")
		if all := jsonOf[[]admin.Pause](s.run("pauses --json").ok()); len(all) != 1 || !all[0].Parks {
			t.Errorf("the pauses are %+v", all)
		}
		s.run("unpause " + flags).ok().prints("unpaused " + text)
	}
	s.run("pauses").ok().says("Nothing is paused.")
}

func TestTopicsAndConsumers(t *testing.T) {
	k, s := newShell(t)
	s.run("topics").ok().says("There are no topics.")
	s.run("consumers").ok().says("There are no consumers.")
	orders := topic.Define[int]("orders")
	if err := topic.New(k.Client).Publish(k.Ctx, orders.With(1)); err != nil {
		t.Fatal(err)
	}
	s.run("topics").ok().prints("orders", "1")
	if all := jsonOf[[]admin.TopicInfo](s.run("topics --json").ok()); len(all) != 1 || all[0].Name != "orders" {
		t.Errorf("the topics are %+v", all)
	}
	s.run("consumers --json").ok().prints("[]")
}

func TestHealthAndStuck(t *testing.T) {
	k, s := newShell(t)
	s.run("health").ok().prints("default: healthy", "schema")
	s.run("stuck").ok().prints("Nothing is stuck.")
	kit.Begin(k, approve, 1)
	s.run("stuck").exits(4).prints("NO LIVE WORKER HAS", "approve")
	stuck := jsonOf[struct {
		Checks   []health.Check
		Stranded []admin.StrandedRuns
	}](s.run("stuck --json").exits(4))
	if len(stuck.Stranded) != 1 {
		t.Errorf("it is %+v", stuck)
	}
	s.run("pause --all --actor ada --reason", "maintenance").ok()
	s.run("health").exits(4).prints("degraded", "pauses", "ada", ": maintenance. kagzi pauses lists the pauses, "+
		"kagzi unpause ends one.").omits("An unpause")
	report := jsonOf[health.Report](s.run("health --json").exits(4))
	if report.Status != health.Degraded {
		t.Errorf("the report is %+v", report)
	}
}

func TestHealthCountsFailuresByKind(t *testing.T) {
	k, s := newShell(t)
	serveCheckout(k, always)
	for i := range 12 {
		kit.FailureOf(k, kit.Begin(k, checkout, 2*i+1), kagzi.StatusFailed)
	}
	s.run("health").exits(4).prints("FAILED IN THE LAST HOUR", "checkout", "unavailable", "12",
		"Restart those that were compensated. kagzi runs list --status failed --ended-since 1h lists them").
		omits("Client.", "Resume")
}

func TestDoctor(t *testing.T) {
	_, s := newShell(t)
	r := s.run("doctor --all")
	r.prints("server", "schema", "clock")
	found := jsonOf[[]struct{ Topic, Severity, Finding, Do string }](s.run("doctor --json"))
	problem := false
	for _, f := range found {
		problem = problem || f.Severity == "problem"
	}
	if len(found) < 14 || problem != (r.code == 4) {
		t.Errorf("it exits with %d and finds %+v", r.code, found)
	}
}

// Keys come from a pipe, and what a terminal would get goes to a buffer.
func TestTopShowsADatabaseAndQuits(t *testing.T) {
	k, s := newShell(t)
	kit.Begin(k, approve, 1, kagzi.Queue("shop"))
	s.terminal = 100
	keys, press := io.Pipe()
	out := &lockedBuffer{}
	done := make(chan int)
	go func() { done <- cli.Run(k.Ctx, []string{"top", "--interval", "100ms"}, s.world(keys, out, io.Discard)) }()
	await.True(t, "top shows the queue", func() bool { return strings.Contains(out.String(), "approve") })
	if _, err := press.Write([]byte("q")); err != nil {
		t.Fatal(err)
	}
	if code := <-done; code != 0 {
		t.Errorf("kagzi top exits with %d", code)
	}
	_ = press.Close()
}

// A lockedBuffer is a buffer that is read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestStats(t *testing.T) {
	k, s := newShell(t)
	s.run("stats").ok().prints("default: 0 workers live")
	kit.Begin(k, approve, 1, kagzi.Queue("shop"))
	kit.Begin(k, approve, 1, kagzi.Queue("shop"), kagzi.Delay(time.Hour))
	kit.Begin(k, checkout, 1, kagzi.Queue("shop"))
	s.env["KAGZI_NAMESPACE"] = "default"
	await.True(t, "the answer is new", func() bool { return strings.Contains(s.run("stats").ok().out, "approve") })
	if r := s.run("stats").ok().prints("QUEUE'S SLOTS", "at the last heartbeats"); strings.Count(r.out, "none") != 1 {
		t.Errorf("the slots of the queue are repeated:\n%s", r.out)
	}
	st := jsonOf[admin.Stats](s.run("stats --json").ok())
	if len(st.Workflows) != 2 || st.Workflows[0].Due != 1 || st.Workflows[0].Delayed != 1 {
		t.Errorf("the stats are %+v", st)
	}
}

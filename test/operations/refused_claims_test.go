package operations_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/topic"
)

// refuseAtCommit is refuse for a constraint that is checked at the commit.
func refuseAtCommit(t *testing.T, k *kit.Kit, table, event, condition string) {
	t.Helper()
	k.Exec(`CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'poison'; END $$`)
	k.Exec(`CREATE CONSTRAINT TRIGGER refuse AFTER ` + event + ` ON kagzi.` + table +
		` DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (` + condition + `) EXECUTE FUNCTION refuse()`)
}

// wantHealthToName waits until the report says that the worker cannot do what.
func wantHealthToName(t *testing.T, k *kit.Kit, what string) {
	t.Helper()
	await.True(t, "Health says "+what, func() bool {
		report, err := admin.New(k.Client).Health(k.Ctx)
		must(t, err)
		for _, c := range report.Checks {
			if c.Name == "work" && c.Status == health.Degraded && strings.Contains(c.Detail, what) {
				return true
			}
		}
		return false
	})
}

// The database refuses the claim of one run. All others are claimed, the run is named, and it is claimed once it may
// be.
func TestRefusedClaimHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	const claimed = `NEW.status = 'RUNNING' AND NEW.metadata::text LIKE '%poison%'`
	for name, tt := range map[string]struct {
		refuse  func(t *testing.T, k *kit.Kit, table, event, condition string)
		when    string
		prepare func(k *kit.Kit)
		opts    func(i int) []kagzi.StartOption // of a run; that with 0 is refused
	}{
		"Plain":     {},
		"AtCommit":  {refuse: refuseAtCommit},
		"AnyChange": {when: `NEW.metadata::text LIKE '%poison%'`},
		"OfOneKey":  {opts: func(int) []kagzi.StartOption { return []kagzi.StartOption{kagzi.Key("key")} }},
		"OfKeys": {opts: func(i int) []kagzi.StartOption {
			return []kagzi.StartOption{kagzi.Key([]string{"bad", "good"}[min(i, 1)])}
		}},
		"OfOneKeyAtCommit": {refuse: refuseAtCommit, opts: func(int) []kagzi.StartOption {
			return []kagzi.StartOption{kagzi.Key("key")}
		}},
		"OfGroups": {opts: func(i int) []kagzi.StartOption {
			return []kagzi.StartOption{kagzi.Group([]string{"bad", "good"}[min(i, 1)])}
		}},
		"OfALimitedQueue": {prepare: func(k *kit.Kit) {
			must(k.T, admin.New(k.Client).Queues.Set(k.Ctx, admin.QueueLimits{Queue: "default", MaxRunning: 1}))
		}},
		"OfKeysOfALimitedQueue": {prepare: func(k *kit.Kit) {
			must(k.T, admin.New(k.Client).Queues.Set(k.Ctx, admin.QueueLimits{
				Queue: "default", MaxRunning: 2,
				EachKey: admin.KeyLimits{MaxRunning: 1},
			}))
		}, opts: func(i int) []kagzi.StartOption {
			return []kagzi.StartOption{kagzi.Key([]string{"bad", "good"}[i%2])}
		}},
		"Paused": {prepare: func(k *kit.Kit) {
			must(k.T, admin.New(k.Client).Pauses.Set(k.Ctx, admin.Target{Queue: "other"}))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, logged := loggedKit(t)
			if tt.refuse == nil {
				tt.refuse = refuse
			}
			if tt.when == "" {
				tt.when = claimed
			}
			tt.refuse(t, k, "workflow_runs", "UPDATE", tt.when)
			if tt.prepare != nil {
				tt.prepare(k)
			}
			wf := kagzi.Define[int, int]("wf", kit.NoRetry)
			var runs []*kagzi.Run[int]
			for i := range 8 {
				var opts []kagzi.StartOption
				if tt.opts != nil {
					opts = tt.opts(i)
				}
				if i == 0 {
					opts = append(opts, kagzi.Metadata{"m": "poison"})
				}
				runs = append(runs, kit.Begin(k, wf, i, opts...))
			}
			w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{PollInterval: 200 * time.Millisecond})
			kagzi.Handle(w, wf, func(_ kagzi.Context, n int) (int, error) { return n, nil })
			kit.StartWorker(t, w)
			for i, run := range runs[1:] {
				if got := kit.ResultOf(k, run); got != i+1 {
					t.Errorf("run %d returned %d", i+1, got)
				}
			}
			if info := k.InfoOf(runs[0]); info.Status != kagzi.StatusPending {
				t.Errorf("the refused run is %s", info.Status)
			}
			wantHealthToName(t, k, "claim run "+string(runs[0].ID()))
			k.Exec(`DROP TRIGGER refuse ON kagzi.workflow_runs`)
			kit.ResultOf(k, runs[0])
			n := 0
			for line := range strings.Lines(logged.String()) {
				if strings.Contains(line, "refuses an operation") && strings.Contains(line, string(runs[0].ID())) {
					n++
				}
			}
			if n != 1 {
				t.Errorf("it was logged %d times: %s", n, logged)
			}
		})
	}
}

// Several runs of a backlog are refused. The others are claimed all the same.
func TestManyRefusedClaims(t *testing.T) {
	k := kit.New(t)
	refuse(t, k, "workflow_runs", "UPDATE", `NEW.status = 'RUNNING' AND NEW.metadata::text LIKE '%poison%'`)
	wf := kagzi.Define[int, int]("wf", kit.NoRetry)
	var good []*kagzi.Run[int]
	for i := range 30 {
		if i%3 != 0 {
			kit.Begin(k, wf, i, kagzi.Metadata{"m": "poison"})
			continue
		}
		good = append(good, kit.Begin(k, wf, i))
	}
	kit.ServeWith(k, kagzi.WorkerConfig{MaxConcurrent: 4}, wf, func(_ kagzi.Context, n int) (int, error) {
		return n, nil
	})
	for _, run := range good {
		kit.ResultOf(k, run)
	}
}

// The database refuses the start of a consumer's run, a change of the consumer, or the claim of the run. Other
// consumers and runs go on.
func TestRefusedConsumerHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	for name, r := range map[string][3]string{
		"Start":    {"workflow_runs", "INSERT", `NEW.workflow_type = 'bad'`},
		"Consumer": {"consumers", "UPDATE", `NEW.consumer = 'bad'`},
		"Claim":    {"workflow_runs", "UPDATE", `NEW.status = 'RUNNING' AND NEW.workflow_type = 'bad'`},
	} {
		for group, of := range map[string]string{"Apart": "", "Together": "both"} {
			t.Run(name+group, func(t *testing.T) {
				k := kit.New(t)
				refuse(t, k, r[0], r[1], r[2])
				w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{PollInterval: 200 * time.Millisecond})
				wf := kagzi.Define[int, int]("wf", kit.NoRetry)
				kagzi.Handle(w, wf, func(_ kagzi.Context, n int) (int, error) { return n, nil })
				seen := map[string]chan int{}
				for _, name := range []string{"bad", "good"} {
					events := make(chan int, 100)
					seen[name] = events
					c := topic.DefineConsumer(name, topic.ConsumerConfig{Topics: []topic.AnyTopic{numbers}, Group: of})
					topic.Consume(w, c, func(ctx kagzi.Context, n int) (int, error) {
						peeked, err := topic.Peek(ctx, "p", numbers, 10)
						for _, e := range peeked {
							events <- e.Payload
						}
						if err != nil {
							return n, err
						}
						return n, topic.Reserve(ctx, "r", peeked...)
					})
				}
				kit.StartWorker(t, w)
				for i := range 3 {
					must(t, topic.New(k.Client).Publish(k.Ctx, numbers.With(i)))
					for _, opts := range [][]kagzi.StartOption{nil, {kagzi.Key("k")}, {kagzi.Group("g")}} {
						kit.ResultOf(k, kit.Begin(k, wf, i, opts...))
					}
					if got := await.Receive(t, seen["good"]); got != i {
						t.Errorf("got event %d, want %d", got, i)
					}
				}
				wantHealthToName(t, k, `consumer bad`)
				if len(seen["bad"]) > 0 {
					t.Error("the refused consumer has seen events")
				}
				k.Exec(`DROP TRIGGER refuse ON kagzi.` + r[0])
				await.Receive(t, seen["bad"])
			})
		}
	}
}

// A run has killed its workers three times, and the database refuses what a claim writes to it. The others go on.
func TestRefusedSuspectHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		refuse func(t *testing.T, k *kit.Kit, table, event, condition string)
		status string
	}{
		"Plain": {refuse, "RUNNING"}, "AtCommit": {refuseAtCommit, "RUNNING"}, "SetBack": {refuse, "PENDING"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, _ := loggedKit(t)
			wf := kagzi.Define[int, int]("wf", kit.NoRetry)
			kit.Begin(k, wf, 0, kagzi.Metadata{"m": "poison"})
			k.Exec(`UPDATE kagzi.workflow_runs SET status = 'RUNNING', lease = gen_random_uuid(), version = 1,
				locked_by = gen_random_uuid(), started_at = now(), recoveries = 2, recoveries_since = now(),
				available_at = now() - interval '1 hour'`)
			tt.refuse(t, k, "workflow_runs", "UPDATE",
				fmt.Sprintf(`NEW.status = '%s' AND NEW.metadata::text LIKE '%%poison%%'`, tt.status))
			run := kit.Begin(k, wf, 1)
			w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{PollInterval: 200 * time.Millisecond})
			kagzi.Handle(w, wf, func(_ kagzi.Context, n int) (int, error) { return n, nil })
			kit.StartWorker(t, w)
			kit.ResultOf(k, run)
			kit.ResultOf(k, kit.Begin(k, wf, 2))
			k.Exec(`DROP TRIGGER refuse ON kagzi.workflow_runs`)
		})
	}
}

//go:build unix

package crash_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/campaign"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/topic"
)

var counted = topic.Define[int]("counted")

// inGroup is how many of the consumers are in one group. Each of the others is alone.
const inGroup = 3

// countingOf returns the i-th consumer.
func countingOf(i int) topic.Consumer {
	cfg := topic.ConsumerConfig{
		Topics: []topic.AnyTopic{counted}, LeastWake: 10 * time.Millisecond,
		IgnoreFailure: true,
	}
	if i < inGroup {
		cfg.Group = "counting"
	}
	return topic.DefineConsumer(fmt.Sprint("counting-", i), cfg)
}

// A tally is the state of a consumer: it tells whether it has had each of n events once.
type tally struct{ Count, Sum, Squares int }

func tallyOf(n int) (t tally) {
	for i := range n {
		t = t.add(i)
	}
	return t
}

func (t tally) add(n int) tally { return tally{t.Count + 1, t.Sum + n, t.Squares + n*n} }

// handleConsumers gives the worker the functions of n consumers. Each takes some of the events that it sees, and writes
// them down.
func handleConsumers(w *kagzi.Worker, l workload, n int) {
	for i := range n {
		c := countingOf(i)
		topic.Consume(w, c, func(ctx kagzi.Context, last tally) (tally, error) {
			events, err := topic.Peek(ctx, "new", counted, 200)
			if err != nil {
				return last, err
			}
			run := ctx.RunID()
			var some []topic.Event[int]
			var took []string
			for k, e := range events {
				if len(events) < 20 || (k+i)%7 > 0 { // holes
					some, took, last = append(some, e), append(took, strconv.Itoa(e.Payload)), last.add(e.Payload)
				}
			}
			if err := topic.Reserve(ctx, "some", some...); err != nil {
				return last, err
			}
			if err := kagzi.Do(ctx, "write", func(context.Context) error {
				l.led.write("ENTER", c.Name(), run, os.Getpid())
				defer l.led.write("EXIT", c.Name(), run, os.Getpid())
				l.reach("during step")
				if len(took) > 0 {
					l.led.write("TOOK", c.Name(), run, strings.Join(took, " "))
				}
				return nil
			}); err != nil {
				return last, err
			}
			return last, topic.WakeAt(ctx, ctx.Now().Add(time.Second)) // it may have left some
		})
	}
}

// TestConsumersThroughAllTroubles has ten consumers of one topic, and three worker processes. Meanwhile events are
// published with lost answers and in transactions that stay open or are rolled back, processes are killed, connections
// ended, answers lost, and a snapshot is held. Each consumer has each event once, in one run, and no two runs of a
// group are active at once.
func TestConsumersThroughAllTroubles(t *testing.T) {
	t.Parallel()
	const consumers = 10
	events := campaign.Size(400, 2000)
	if n, err := strconv.Atoi(os.Getenv("KAGZI_TEST_EVENTS")); err == nil {
		events = n
	}
	db := dbtest.Database(t)
	proxy := pgproxy.Start(t, db.DSN)
	client := kit.NewClient(t, dbtest.OpenPool(t, proxy.DSN(), dbtest.Conns(6)))
	file := filepath.Join(t.TempDir(), "ledger")
	led, err := openLedger(file)
	if err != nil {
		t.Fatal(err)
	}
	start := func(nth int) *process {
		cfg := kit.Quick
		cfg.StaleAfter = 2 * time.Second
		spec := workerSpec{DSN: proxy.DSN(), Ledger: file, Config: cfg, Consumers: consumers}
		if nth > 0 {
			spec.Point, spec.Nth, spec.Signal = []string{"before flush", "after flush", "during step"}[nth%3], nth,
				syscall.SIGKILL
		}
		return startProcess(t, spec)
	}
	processes := []*process{start(0), start(0), start(0)}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { publishAll(ctx, t, db, client, events) })

	old := begin(t, db) // an old snapshot
	states := func() (done int) {
		for i := range consumers {
			if stateOf(t, db, i).Count == events {
				done++
			}
		}
		return done
	}
	for round := 0; states() < consumers; round++ {
		before := countIn(t, file, "TOOK")
		await.True(t, "the consumers go on", func() bool {
			return countIn(t, file, "TOOK") > before+5 || states() == consumers
		})
		switch round % 4 {
		case 0:
			p := processes[0]
			_ = p.cmd.Process.Kill()
			p.ended(t)
			led.write("DEAD", p.cmd.Process.Pid)
			processes = append(processes[1:], start(0))
		case 1:
			dbtest.Exec(t, db.Pool, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				WHERE datname = current_database() AND pid <> pg_backend_pid() AND random() < 0.3
				AND application_name <> 'old'`)
			db.Pool.Reset() // the test's own connections may be among them
		case 2:
			for range 3 {
				proxy.DropAck(pgproxy.Contains("COMMIT"))
			}
		case 3:
			p := start(1 + rand.IntN(30))
			await.BecomesTrue(5*time.Second, func() bool {
				return countIn(t, file, "REACHED") > 0 && !alive(p) || states() == consumers
			})
			_ = p.cmd.Process.Kill()
			p.ended(t)
			led.write("DEAD", p.cmd.Process.Pid)
		}
		if round == 20 {
			_ = old.Rollback(ctx)
		}
	}
	wg.Wait()
	for i := range consumers {
		if got, want := stateOf(t, db, i), tallyOf(events); got != want {
			t.Errorf("consumer %d has %+v, want %+v", i, got, want)
		}
	}
	for _, p := range processes {
		p.stop(t)
	}
	checkTaken(t, file, consumers, events)
}

func begin(t *testing.T, db *dbtest.DB) pgx.Tx {
	t.Helper()
	tx, err := db.Pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	if _, err := tx.Exec(t.Context(), `SET application_name = 'old'`); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT count(*) FROM kagzi.consumers`); err != nil {
		t.Fatal(err)
	}
	return tx
}

func alive(p *process) bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// stateOf returns the state of the i-th consumer.
func stateOf(t *testing.T, db *dbtest.DB, i int) (s tally) {
	t.Helper()
	text := dbtest.QueryOne[string](t, db.Pool,
		`SELECT coalesce((SELECT convert_from(state, 'UTF8') FROM kagzi.consumers WHERE consumer = $1), '{}')`,
		countingOf(i).Name())
	if _, err := fmt.Sscanf(text, `{"Count":%d,"Sum":%d,"Squares":%d}`, &s.Count, &s.Sum, &s.Squares); err != nil &&
		text != "{}" && text != "" {
		t.Fatal(text, err)
	}
	return s
}

// publishAll publishes the numbers below n, each at least once, and each time with the same ID.
func publishAll(ctx context.Context, t *testing.T, db *dbtest.DB, c *kagzi.Client, n int) {
	event := func(i int) topic.NewEvent { return counted.With(i).WithID(kagzi.ID(fmt.Sprint("event-", i))) }
	for i := 0; i < n && ctx.Err() == nil; {
		var some []topic.NewEvent
		for k := i; k < min(n, i+1+rand.IntN(max(1, n/50))); k++ {
			some = append(some, event(k))
		}
		var err error
		switch rand.IntN(4) {
		case 0:
			err = topic.New(c).Publish(ctx, some[0])
			some = some[:1]
		case 1:
			err = topic.New(c).PublishMany(ctx, some)
		default: // in a transaction that may be rolled back, while others publish
			commit := rand.IntN(2) == 0
			err = pgx.BeginFunc(ctx, db.Pool, func(tx pgx.Tx) error {
				if err := topic.New(c).PublishMany(ctx, some, kagzi.InTx(tx)); err != nil {
					return err
				}
				if i > 0 {
					_ = topic.New(c).Publish(ctx, event(rand.IntN(i))) // again
				}
				if !commit {
					return context.Canceled
				}
				return nil
			})
		}
		if err == nil {
			i += len(some)
		}
	}
	if ctx.Err() == nil {
		return
	}
	t.Log("not all events were published")
}

// checkTaken fails the test if a consumer has taken an event in two runs, or two runs of a group were active at once.
func checkTaken(t *testing.T, file string, consumers, events int) {
	t.Helper()
	lines, err := readLedger(file)
	if err != nil {
		t.Fatal(err)
	}
	taken := map[string]map[string]string{} // by consumer and event, the run
	inside := map[string]string{}           // by process and group, the run
	for _, l := range lines {
		switch l[0] {
		case "TOOK":
			if taken[l[1]] == nil {
				taken[l[1]] = map[string]string{}
			}
			for e := range strings.FieldsSeq(l[3]) {
				if run, ok := taken[l[1]][e]; ok && run != l[2] {
					t.Errorf("consumer %s has taken event %s in runs %s and %s", l[1], e, run, l[2])
				}
				taken[l[1]][e] = l[2]
			}
		case "ENTER":
			group := groupOf(l[1])
			for in, run := range inside {
				if strings.HasSuffix(in, "/"+group) && run != l[2] {
					t.Errorf("run %s of %s began while run %s of its group was active", l[2], l[1], run)
				}
			}
			inside[l[3]+"/"+group] = l[2]
		case "EXIT":
			delete(inside, l[3]+"/"+groupOf(l[1]))
		case "DEAD", "REACHED":
			for in := range inside {
				if strings.HasPrefix(in, l[len(l)-1]+"/") {
					delete(inside, in)
				}
			}
		}
	}
	for consumer, of := range taken {
		if len(of) != events {
			t.Errorf("consumer %s has taken %d events", consumer, len(of))
		}
	}
	if len(taken) != consumers {
		t.Errorf("%d consumers have taken events", len(taken))
	}
}

func groupOf(consumer string) string {
	var i int
	_, _ = fmt.Sscanf(consumer, "counting-%d", &i)
	return countingOf(i).Group()
}

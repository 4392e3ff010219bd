package store_test

import (
	"context"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/store/inspect"
	"github.com/kagzi/kagzi/waits"
)

// The statements of lists and counts are joined from predicates, so no constant has them. The tests of all statements
// have those with one predicate, and that with all of them.
func init() {
	store.Joined = func(t *testing.T) map[string]string {
		_, all := asked(t, true, func(yield func(inspect.Filter)) {
			yield(filter())
			for i := range predicates {
				yield(filter(i))
			}
			every := make([]int, len(predicates))
			for i := range every {
				every[i] = i
			}
			yield(filter(every...))
		})
		statements := map[string]string{}
		for i, q := range all {
			statements[fmt.Sprint("joined ", i)] = q.SQL
		}
		return statements
	}
}

// predicates make a Filter ask for one thing each.
var predicates = []func(*inspect.Filter){
	func(f *inspect.Filter) { f.Status = []string{store.Pending, store.Completed} },
	func(f *inspect.Filter) { f.Type = "type" },
	func(f *inspect.Filter) { f.Queue = "queue" },
	func(f *inspect.Filter) { f.ExternalID = "id" },
	func(f *inspect.Filter) { f.Parent = uuid.Max },
	func(f *inspect.Filter) { f.Metadata = []byte(`{"k": "v"}`) },
	func(f *inspect.Filter) { f.Created.From = time.Now().Add(-time.Hour) },
	func(f *inspect.Filter) { f.Created.Until = time.Now() },
	func(f *inspect.Filter) { f.After = uuid.Max },
	func(f *inspect.Filter) { f.Schedule = uuid.Max },
	func(f *inspect.Filter) { f.Key = store.Key{Name: "key"} },
	func(f *inspect.Filter) { f.Error.Kind = "kind" },
	func(f *inspect.Filter) { f.WaitingOn = waits.Wait{Kind: waits.Signal, Name: "approved"} },
	func(f *inspect.Filter) { f.Ended.From = time.Now().Add(-time.Hour) },
	func(f *inspect.Filter) { f.Ended.Until = time.Now() },
	func(f *inspect.Filter) { f.Paused = true },
	func(f *inspect.Filter) { f.Error.Text = "text" },
	func(f *inspect.Filter) { f.IDs = []uuid.UUID{uuid.Max} },
	func(f *inspect.Filter) { f.MinRecoveries = 1 },
}

// filter returns a filter that asks for these predicates.
func filter(these ...int) inspect.Filter {
	f := inspect.Filter{Page: inspect.Page{Limit: 10, Payloads: len(these)%2 == 1}}
	for _, i := range these {
		predicates[i](&f)
	}
	return f
}

// A watcher notes the statements about runs that are sent.
type watcher struct{ sent []*pgx.QueuedQuery }

func (w *watcher) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (w *watcher) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (w *watcher) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, q := range data.Batch.QueuedQueries {
		if strings.Contains(q.SQL, "FROM kagzi.workflow_runs r") {
			w.sent = append(w.sent, q)
		}
	}
	return ctx
}

func (w *watcher) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (w *watcher) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// asked lists and counts the runs of filters, and returns the statements about runs that this sends; with citus those
// for distributed tables.
func asked(t *testing.T, citus bool, each func(yield func(inspect.Filter))) (*dbtest.DB, []*pgx.QueuedQuery) {
	t.Helper()
	db, w := dbtest.Database(t), &watcher{}
	v := inspect.New(dbtest.OpenPool(t, db.DSN, dbtest.Conns(1), func(c *pgxpool.Config) {
		c.ConnConfig.Tracer = w
		if citus {
			dbtest.LooksLikeCitus(c)
		}
	}), "test")
	each(func(f inspect.Filter) {
		if _, err := v.List(t.Context(), nil, f); err != nil {
			t.Errorf("list %+v: %v", f, err)
		}
		if _, err := v.Counts(t.Context(), f, inspect.Grouping{}); err != nil {
			t.Errorf("count %+v: %v", f, err)
		}
	})
	return db, w.sent
}

// A list and a count work for each two predicates, and no statement reads the whole table of runs.
func TestEveryPairOfPredicates(t *testing.T) {
	t.Parallel()
	n := reflect.TypeFor[inspect.Filter]().NumField()
	for field, uses := range map[reflect.Type]int{
		reflect.TypeFor[inspect.Span](): 2, reflect.TypeFor[inspect.Failure](): 1, reflect.TypeFor[inspect.Page](): 1,
	} {
		n += uses * (field.NumField() - 1)
	}
	if n -= 2; n != len(predicates) { // but Limit and Payloads
		t.Fatalf("a Filter asks for %d things, and the test for %d", n, len(predicates))
	}
	db, all := asked(t, false, func(yield func(inspect.Filter)) {
		for i := range predicates {
			for j := range i {
				yield(filter(i, j))
			}
		}
	})
	if n := len(predicates) * (len(predicates) - 1) / 2; len(all) < 3*n/2 {
		t.Errorf("%d statements for %d pairs", len(all), n)
	}
	tx := dbtest.Begin(t, db.Pool)
	if _, err := tx.Exec(t.Context(), pg.ApplySettings); err != nil {
		t.Fatal(err)
	}
	whole := regexp.MustCompile(`"Node Type": "Seq Scan",[^{}]*"Relation Name": "workflow_runs"`)
	for _, q := range all {
		var plan string
		if err := tx.QueryRow(t.Context(), "EXPLAIN (FORMAT JSON) "+q.SQL, q.Arguments...).Scan(&plan); err != nil {
			t.Fatalf("%v: %s", err, q.SQL)
		}
		if whole.MatchString(plan) {
			t.Errorf("it reads all runs: %s\n%s", q.SQL, plan)
		}
	}
}

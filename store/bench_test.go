package store

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/dbtest"
)

// BenchmarkFlush measures a flush of 100 records, and how much of it is spent on encoding its arguments.
func BenchmarkFlush(b *testing.B) {
	const n = 100
	b.Run("Arguments", func(b *testing.B) {
		s := New(nil, "test")
		f := &Flush{}
		for range n {
			r := &ClaimedRun{RunID: uuid.New(), Lease: uuid.New()}
			f.Records, f.Suspensions, f.Finishes = append(f.Records, record(r, "step", "output")),
				append(f.Suspensions, sleep(r, time.Hour)), append(f.Finishes, finish(r))
		}
		b.ReportAllocs()
		for b.Loop() {
			if len(recordColumns.args(s.namespace, f.Records))+len(suspendColumns.args(s.namespace, f.Suspensions))+
				len(finishColumns.args(s.namespace, f.Finishes)) != 23+15+8 {
				b.Fatal("other arguments")
			}
		}
	})
	for _, n := range []int{1, n} {
		b.Run(fmt.Sprintf("Records=%d/WithoutPremises", n), func(b *testing.B) { benchmarkRecords(b, n, false, false) })
		b.Run(fmt.Sprintf("Records=%d/Vouched", n), func(b *testing.B) { benchmarkRecords(b, n, true, true) })
		b.Run(fmt.Sprintf("Records=%d/Asked", n), func(b *testing.B) { benchmarkRecords(b, n, true, false) })
	}
}

// benchmarkRecords flushes records of n runs. If premises is set, each builds on the one before, for which the
// connection vouches or the table is asked.
func benchmarkRecords(b *testing.B, n int, premises, vouched bool) {
	s := New(dbtest.Pool(b, dbtest.Unchecked()), "test")
	if _, err := s.Starts.Start(b.Context(), nil, many(n)); err != nil {
		b.Fatal(err)
	}
	c, err := s.Claims.Claim(b.Context(), request(n, func(r *ClaimRequest) { r.LeaseTimeout = time.Hour }))
	if err != nil || len(c.Runs) != n {
		b.Fatalf("claimed %d, error %v", len(c.Runs), err)
	}
	b.ReportAllocs()
	var known []Premise
	for i := 0; b.Loop(); i++ {
		f := &Flush{Premises: known}
		for _, r := range c.Runs {
			f.Records = append(f.Records, record(r, fmt.Sprint("step ", i), "output"))
		}
		if err := s.Records.Flush(b.Context(), f); err != nil || f.Records[n-1].Outcome != Done {
			b.Fatalf("outcome %d, error %v", f.Records[n-1].Outcome, err)
		}
		known = nil
		by := Witness{} // which vouches for nothing
		if vouched {
			by = f.By
		}
		for _, r := range f.Records {
			if premises {
				known = append(known, PremiseOf(&r.StepRow, by))
			}
		}
	}
}

// BenchmarkPeek reads the first 100 events that a consumer has not consumed, behind a million that it has (or
// KAGZI_BENCH_EVENTS), with an older one that it has left or without, and with fresh, missing and stale statistics: go
// test -run '^$' -bench Peek ./store
func BenchmarkPeek(b *testing.B) {
	consumed := 1_000_000
	if n, err := strconv.Atoi(os.Getenv("KAGZI_BENCH_EVENTS")); err == nil {
		consumed = n
	}
	s := New(dbtest.Pool(b, dbtest.Unchecked()), "test")
	do := func(sql string, args ...any) {
		b.Helper()
		if _, err := s.pool.Exec(b.Context(), sql, args...); err != nil {
			b.Fatal(err)
		}
	}
	do(`ALTER TABLE kagzi.events_0 SET (autovacuum_enabled = off)`)
	do(`ANALYZE kagzi.events`)
	do(`INSERT INTO kagzi.events (topic, event_id, namespace_id, part, position, payload, published_at)
		SELECT 'topic', g::text, 'test', 0, nextval('kagzi.event_positions'), '1', now()
			FROM generate_series(1, $1::int) AS g`, consumed+101)
	do(`INSERT INTO kagzi.subscriptions (topic, consumer, namespace_id, run_key, task_queue, subscribed, position,
		consumed, looked_at)
		VALUES ('topic', 'all', 'test', 'k', 'q', true, $1, '{}', 0), ('topic', 'but one', 'test', 'k', 'q', true, 0,
			$2::text::int8multirange, 0)`, consumed, fmt.Sprintf("{[2,%d]}", consumed))
	for _, statistics := range []string{"stale", "missing", "fresh"} {
		switch statistics {
		case "missing":
			do(`DELETE FROM pg_statistic WHERE starelid = 'kagzi.events_0'::regclass`)
			do(`UPDATE pg_class SET reltuples = -1, relpages = 0 WHERE oid = 'kagzi.events_0'::regclass`)
		case "fresh":
			do(`VACUUM ANALYZE kagzi.events`)
		}
		s.pool.Reset()
		for _, consumer := range []string{"all", "but one"} {
			b.Run(statistics+"/"+consumer, func(b *testing.B) {
				for b.Loop() {
					if p, err := s.Consumers.Peek(b.Context(), consumer, "topic", 100, 1<<20, nil); err != nil ||
						len(p.Events) != 100 {
						b.Fatal(len(p.Events), err)
					}
				}
			})
		}
	}
}

// BenchmarkClaim measures a claim that is rolled back: of nothing, of some runs, and of a hundred runs of as many keys
// out of a thousand: go test -run '^$' -bench Claim -benchtime 500x ./store
func BenchmarkClaim(b *testing.B) {
	for name, c := range map[string]struct {
		runs, keys, limit, types int
	}{
		"Nothing": {0, 0, 100, 1}, "NothingOf50": {0, 0, 100, 50}, "One": {1, 0, 100, 1}, "Hundred": {10000, 0, 100, 1},
		"ThousandKeys": {5000, 1000, 100, 1}, "OneKey": {100, 1, 100, 1},
	} {
		b.Run(name, func(b *testing.B) {
			s := New(dbtest.Pool(b, dbtest.Unchecked()), "test")
			runs := many(c.runs)
			for i := range runs {
				if c.keys > 0 {
					runs[i].Key.Name = fmt.Sprint("key-", i%c.keys)
				}
			}
			if _, err := s.Starts.Start(b.Context(), nil, runs); c.runs > 0 && err != nil {
				b.Fatal(err)
			}
			req := request(c.limit)
			for i := 1; i < c.types; i++ {
				req.Types = append(req.Types, WorkflowVersions{fmt.Sprint("type-", i), []int{1}, 1})
			}
			if c.keys > 0 {
				req.Keys = &KeysRequest{Plain: c.limit, Keyed: c.limit, Most: 500}
				for _, sql := range []string{
					`INSERT INTO kagzi.run_keys (key_scope, run_key, namespace_id, available_at)
						SELECT DISTINCT key_scope, run_key, namespace_id, now() FROM kagzi.key_changes`,
					`DELETE FROM kagzi.key_changes`,
					`INSERT INTO kagzi.queues (task_queue, namespace_id, key_max_running)
						VALUES ('queue', 'test', 100)`,
				} {
					if _, err := s.pool.Exec(b.Context(), sql); err != nil {
						b.Fatal(err)
					}
				}
			}
			if _, err := s.pool.Exec(b.Context(), `VACUUM ANALYZE`); err != nil {
				b.Fatal(err)
			}
			req.trial = &trial{}
			want := min(c.runs, c.limit)
			for b.Loop() {
				if got, err := s.Claims.claim(b.Context(), req); err != nil || len(got.Runs) != want {
					b.Fatalf("claimed %d, want %d: %v", len(got.Runs), want, err)
				}
			}
		})
	}
}

package store

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/dbtest"
)

// A batchTracer is called before a batch is sent, with its statements.
type batchTracer func(sql []string)

func (f batchTracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceBatchStartData) context.Context {
	var sql []string
	for _, q := range d.Batch.QueuedQueries {
		sql = append(sql, q.SQL)
	}
	f(sql)
	return ctx
}

func (batchTracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (batchTracer) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

func (batchTracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (batchTracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// beforeBatch returns a store of the database of s that calls f once, before it sends a batch with the statement.
func beforeBatch(t *testing.T, s *Store, dsn, statement string, f func()) *Store {
	t.Helper()
	var did atomic.Bool
	pool := poolWith(t, dsn, func(cfg *pgxpool.Config) {
		cfg.ConnConfig.Tracer = batchTracer(func(sql []string) {
			if slices.Contains(sql, statement) && !did.Swap(true) {
				f()
			}
		})
	})
	return New(pool, s.namespace)
}

// A pause that commits between the two round trips of a claim loses none of the runs that the first has taken. It holds
// for the second, and what it does not stop is taken.
func TestPauseDuringAClaim(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pause Pause
		stops bool
	}{
		"AnotherQueue": {Pause{Queue: "another"}, false},
		"Workflow":     {Pause{Type: "type"}, true},
		"Key":          {Pause{Queue: "queue", Key: Key{Name: "b"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Database(t)
			s := New(db.Pool, "test")
			met := beforeBatch(t, s, db.DSN, claimKeys, func() {
				if _, err := s.Pauses.Pause(t.Context(), nil, c.pause); err != nil {
					t.Error(err)
				}
			})
			plain, keyed := start(t, s, newRun(), newRun()), start(t, s, newRun(ofKey("a")))
			want := slices.Concat(plain, keyed)
			if c.stops {
				want = plain
			}
			first := claim(t, met, keyedRequest(10))
			if got := sorted(runIDs(first.Runs)); !slices.Equal(got, want) {
				t.Errorf("claimed %v, want %v", got, want)
			}
			running := column[uuid.UUID](t, s.pool, `SELECT run_id FROM kagzi.workflow_runs WHERE status = 'RUNNING'
				ORDER BY run_id`)
			if !slices.Equal(running, want) {
				t.Errorf("%v are running", running)
			}
			unpause(t, s, c.pause)
			if got := claim(t, s, keyedRequest(10)); len(first.Runs)+len(got.Runs) != 3 {
				t.Errorf("then claimed %v", runIDs(got.Runs))
			}
		})
	}
}

// A brokenCodec is that of an application: it fails to read some values.
type brokenCodec struct{ pgtype.Codec }

func (c brokenCodec) PlanScan(m *pgtype.Map, oid uint32, format int16, target any) pgtype.ScanPlan {
	return brokenPlan{c.Codec.PlanScan(m, oid, format, target)}
}

type brokenPlan struct{ pgtype.ScanPlan }

func (p brokenPlan) Scan(src []byte, target any) error {
	if slices.Contains([]string{`{"broken": "yes"}`, "\x01" + `{"broken": "yes"}`}, string(src)) {
		return errBrokenCodec
	}
	return p.ScanPlan.Scan(src, target)
}

var errBrokenCodec = errors.New("broken codec")

func withBrokenCodec(_ context.Context, conn *pgx.Conn) error {
	jsonb, _ := conn.TypeMap().TypeForOID(pgtype.JSONBOID)
	conn.TypeMap().RegisterType(&pgtype.Type{Name: "jsonb", OID: pgtype.JSONBOID, Codec: brokenCodec{jsonb.Codec}})
	return nil
}

// An answer that cannot be read as a whole is no answer: a part of the runs would be executed, and the others
// forgotten.
func TestClaimReadInPart(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	s := New(db.Pool, "test")
	broken := New(poolWith(t, db.DSN, func(cfg *pgxpool.Config) {
		cfg.AfterConnect = withBrokenCodec
	}), "test")
	start(t, s, newRun(), newRun(func(r *NewRun) { r.Metadata = []byte(`{"broken": "yes"}`) }))
	req := request(10)
	got, err := broken.Claims.Claim(t.Context(), req)
	if err == nil || len(got.Runs) > 0 {
		t.Errorf("claimed %v, error %v", runIDs(got.Runs), err)
	}
	got, err = broken.Claims.Resolve(t.Context(), req)
	if err == nil || len(got.Runs) > 0 {
		t.Errorf("resolved %v, error %v", runIDs(got.Runs), err)
	}
	if got, err := s.Claims.Resolve(t.Context(), req); err != nil || len(got.Runs) != 2 {
		t.Errorf("resolved %v, error %v", runIDs(got.Runs), err)
	}
}

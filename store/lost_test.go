package store

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

// losing returns a store behind a proxy, and one that is not.
func losing(t *testing.T) (through, direct *Store, proxy *pgproxy.Proxy) {
	t.Helper()
	db := dbtest.Database(t)
	dbtest.Audit(t, db.Pool)
	proxy = pgproxy.Start(t, db.DSN)
	return New(poolWith(t, proxy.DSN(), func(c *pgxpool.Config) { c.MaxConns = 2 }), "test"),
		New(db.Pool, "test"), proxy
}

// A loss is of an answer, which the server has given after the commit, or of a request, which it has not seen.
var losses = map[string]func(*pgproxy.Proxy, string) *pgproxy.Drop{
	"Answer":  func(p *pgproxy.Proxy, part string) *pgproxy.Drop { return p.DropAck(pgproxy.Contains(part)) },
	"Request": func(p *pgproxy.Proxy, part string) *pgproxy.Drop { return p.DropRequest(pgproxy.Contains(part)) },
}

// eachLoss runs a test for both kinds of loss; done says whether the server did what it was asked.
func eachLoss(t *testing.T, test func(t *testing.T, lose func(*pgproxy.Proxy, string) *pgproxy.Drop, done bool)) {
	t.Parallel()
	for name, lose := range losses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, lose, name == "Answer")
		})
	}
}

func happened(t *testing.T, d *pgproxy.Drop) {
	t.Helper()
	select {
	case <-d.Done(): // a moment after the client noticed
	case <-time.After(await.Patience):
		t.Fatal("nothing was lost: the test shows nothing")
	}
}

func wantAway(t *testing.T, err error) {
	t.Helper()
	if !pg.Unavailable(err) {
		t.Fatalf("error %v, want one that says that the outcome is unknown", err)
	}
}

func TestLostClaim(t *testing.T) {
	eachLoss(t, func(t *testing.T, lose func(*pgproxy.Proxy, string) *pgproxy.Drop, done bool) {
		s, direct, proxy := losing(t)
		ids := start(t, direct, newRun(withID("id"), withTimeout(time.Hour)), newRun(withPriority(1)),
			newRun(withDelay(time.Hour)))[:2]
		req := request(5)
		drop := lose(proxy, "FOR UPDATE SKIP LOCKED")
		_, err := s.Claims.Claim(t.Context(), req)
		wantAway(t, err)
		happened(t, drop)
		found, err := s.Claims.Resolve(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if !done {
			if len(found.Runs) > 0 {
				t.Errorf("found %v of a claim that never was", found.Runs)
			}
			found = claim(t, s, req)
		}
		var got []uuid.UUID
		for _, r := range found.Runs {
			got = append(got, r.RunID)
			if r.Lease != leaseOf(req.Lease, leaseStarts|leaseVersions) || r.Type != "type" || r.Version != 1 ||
				(string(r.Input) == "input") == done || r.Recoveries != 0 || !r.Fresh {
				t.Errorf("found %+v", r)
			}
			if r.RunID == ids[0] && (r.ExternalID != "id" || r.DeadlineAt.IsZero()) {
				t.Errorf("found %+v", r)
			}
		}
		slices.SortFunc(got, compareIDs)
		if !slices.Equal(got, ids) || found.Now.IsZero() {
			t.Errorf("found %v, want %v", got, ids)
		}
		if again := claim(t, direct, request(5)); len(again.Runs) > 0 {
			t.Error("claimed twice")
		}
		if found, err := s.Claims.Resolve(t.Context(), request(5)); err != nil || len(found.Runs) > 0 {
			t.Errorf("found %v under another lease, error %v", found.Runs, err)
		}
	})
}

func TestLostFlush(t *testing.T) {
	eachLoss(t, func(t *testing.T, lose func(*pgproxy.Proxy, string) *pgproxy.Drop, done bool) {
		s, direct, proxy := losing(t)
		parent := running(t, direct, 1)[0]
		start(t, direct, newRun(withParent(parent.RunID)))
		child := claim(t, direct, request(1)).Runs[0]
		rs := running(t, direct, 3)
		shown := record(rs[0], "shown", "")
		shown.Status, shown.Output = Running, nil
		failed := record(rs[0], "failed", "")
		failed.Status, failed.Output, failed.ErrorKind, failed.Wake = Failed, nil, "kind", time.Hour
		retry := &Suspension{
			RunID: rs[2].RunID, Lease: rs[2].Lease, Status: Pending, Wake: time.Hour,
			Failed: &FailedAttempt{ErrorKind: "kind", Error: "text"},
		}
		f := &Flush{
			Records:     []*Record{record(rs[0], "step", "x"), shown, failed},
			Suspensions: []*Suspension{sleep(rs[1], time.Hour), retry},
			Finishes:    []*Finish{finish(child)},
		}
		drop := lose(proxy, "INSERT INTO kagzi.step_runs")
		wantAway(t, s.Records.Flush(t.Context(), f))
		happened(t, drop)
		if got := readRow(t, direct.pool, child.RunID).Status == Completed; got != done {
			t.Fatalf("the server did it: %t, want %t", got, done)
		}
		// Another value in a repetition of what is recorded changes nothing.
		f.Records = append(f.Records, record(rs[0], "other", "y"))
		flush(t, s, f)
		for _, r := range f.Records {
			wantOutcome(t, "record "+r.StepID, r.Outcome, Done)
		}
		for _, p := range f.Suspensions {
			wantOutcome(t, "suspend", p.Outcome, Done)
		}
		wantOutcome(t, "finish", f.Finishes[0].Outcome, Done)
		if row := readRow(t, direct.pool, rs[1].RunID); row.Status != Sleeping || row.In < 3500 {
			t.Errorf("the sleeping run: %+v", row)
		}
		if row := readRow(t, direct.pool, rs[2].RunID); row.Status != Pending || row.Attempts != 1 {
			t.Errorf("the run to retry: %+v, want one failed attempt", row)
		}
		if row := readRow(t, direct.pool, parent.RunID); row.Wakeups != 1 {
			t.Errorf("the parent has %d wake-ups, want 1", row.Wakeups)
		}
		if n := one[int](t, direct.pool, `SELECT count(*) FROM kagzi.step_runs`); n != 4 {
			t.Errorf("%d steps, want 4", n)
		}

		// The end, and a failed one, alone.
		for _, e := range []*Finish{finish(rs[0]), {
			RunID: parent.RunID, Lease: parent.Lease, Status: Failed,
			ErrorKind: "kind", Error: "text",
		}} {
			drop = lose(proxy, map[string]string{
				Completed: "output = u.output",
				Failed:    "u.status, u.output",
			}[e.Status])
			wantAway(t, s.Records.Flush(t.Context(), &Flush{Finishes: []*Finish{e}}))
			happened(t, drop)
			flush(t, s, &Flush{Finishes: []*Finish{e}})
			wantOutcome(t, "finish", e.Outcome, Done)
			want := 0
			if e.Status == Failed {
				want = 1
			}
			if row := readRow(t, direct.pool, e.RunID); row.Status != e.Status || row.Attempts != want {
				t.Errorf("row %+v", row)
			}
		}
		// A suspension whose answer was lost, and whose run another worker has claimed since, is over.
		if done {
			exec(t, direct.pool, `UPDATE kagzi.workflow_runs SET available_at = now() WHERE status = 'SLEEPING'`)
			claim(t, direct, request(1))
			again := &Flush{Suspensions: []*Suspension{sleep(rs[1], time.Hour)}}
			flush(t, s, again)
			wantOutcome(t, "suspension of a run that went on", again.Suspensions[0].Outcome, Lost)
		}
	})
}

func TestLostHeartbeatAndExtension(t *testing.T) {
	eachLoss(t, func(t *testing.T, lose func(*pgproxy.Proxy, string) *pgproxy.Drop, done bool) {
		s, direct, proxy := losing(t)
		w := worker()
		drop := lose(proxy, "INSERT INTO kagzi.worker_events")
		wantAway(t, s.Workers.Register(t.Context(), s.pool, w))
		happened(t, drop)
		if err := s.Workers.Register(t.Context(), s.pool, w); err != nil {
			t.Fatal(err)
		}
		if n := one[int](t, direct.pool, `SELECT count(*) FROM kagzi.worker_events`); n < 1 || n > 2 {
			t.Errorf("%d events", n)
		}
		heartbeat := Heartbeat{
			Number: 1, Worker: w.ID, Queues: w.Queues, Active: 1,
			Counts: Counts{Completed: 2, Failed: 3},
		}
		drop = lose(proxy, "SET heartbeat_at")
		_, err := s.Workers.Heartbeat(t.Context(), s.pool, heartbeat)
		wantAway(t, err)
		happened(t, drop)
		if _, err := s.Workers.Heartbeat(t.Context(), s.pool, heartbeat); err != nil {
			t.Error(err)
		}
		r := running(t, direct, 1)[0]
		drop = lose(proxy, "clock_timestamp() + $4")
		_, err = s.Leases.Extend(t.Context(), s.pool, []HeldRun{held(r)}, time.Hour, nil)
		wantAway(t, err)
		happened(t, drop)
		if got := readRow(t, direct.pool, r.RunID).In > 3000; got != done {
			t.Errorf("extended: %t, want %t", got, done)
		}
		states, _ := extend(t, s, time.Hour, r)
		if !states[0].Holds || readRow(t, direct.pool, r.RunID).In < 3000 {
			t.Errorf("states %+v", states)
		}
		exec(t, direct.pool, `UPDATE kagzi.workers SET heartbeat_at = now() - interval '1 hour'`)
		exec(t, direct.pool, `UPDATE kagzi.workflow_runs SET locked_by = $1, available_at = now() + interval '10 s'`,
			w.ID)
		drop = lose(proxy, "commit")
		_, err = s.Workers.ReleaseLost(t.Context())
		wantAway(t, err)
		happened(t, drop)
		// until the server has noticed, its locks are there
		exec(t, direct.pool, `SELECT FROM kagzi.workers FOR UPDATE`)
		exec(t, direct.pool, `UPDATE kagzi.workers SET release_at = release_at - interval '1 hour'`)
		lost, err := s.Workers.ReleaseLost(t.Context())
		if err != nil || len(lost) != 1 {
			t.Errorf("lost %+v, error %v", lost, err)
		}
		if !readRow(t, direct.pool, r.RunID).Due {
			t.Error("the lost worker's run is not due")
		}
		if n := one[int](t, direct.pool, `SELECT count(*) FROM kagzi.worker_events WHERE event = 'LOST'`); n > 1 {
			t.Errorf("%d events of one loss", n)
		}
	})
}

func TestLostCancelAndResume(t *testing.T) {
	eachLoss(t, func(t *testing.T, lose func(*pgproxy.Proxy, string) *pgproxy.Drop, done bool) {
		s, direct, proxy := losing(t)
		parent := running(t, direct, 1)[0]
		ids := start(t, direct, newRun(withID("id"), withParent(parent.RunID)))
		for _, part := range []string{"coalesce(r.cancel_requested_at, CASE endings.act", "commit"} {
			drop := lose(proxy, part)
			mustCancel(t, s, ids[0], "")
			happened(t, drop)
			if row := readRow(t, direct.pool, ids[0]); row.Status != Cancelled {
				t.Errorf("row %+v", row)
			}
			drop = lose(proxy, part2(part))
			resumed, err := s.Runs.Resume(t.Context(), nil, ids[0], Why{})
			if err != nil || resumed != (Resumed{Queue: "queue"}) {
				t.Fatalf("resumed %+v, error %v", resumed, err)
			}
			happened(t, drop)
			if row := readRow(t, direct.pool, ids[0]); row.Status != Pending || row.Attempts > 2 {
				t.Errorf("row %+v", row)
			}
		}
		if row := readRow(t, direct.pool, parent.RunID); row.Wakeups != 2 {
			t.Errorf("%d wake-ups of two cancels", row.Wakeups)
		}
		if row := readRow(t, direct.pool, ids[0]); row.Attempts != 2 {
			t.Errorf("%d attempts ended by two resumptions", row.Attempts)
		}
	})
}

// part2 is the part of resume that stands where part stands in cancel.
func part2(part string) string {
	if part == "commit" {
		return part
	}
	return "SET status = 'PENDING', slot = NULL, available_at"
}

// TestLostCancelOfARunThatCompletes loses the commit of a cancel, and lets the run complete before the cancel is tried
// again: the caller must hear that the run was not cancelled, if the server has not seen the commit.
func TestLostCancelOfARunThatCompletes(t *testing.T) {
	t.Parallel()
	for name, verb := range map[string]func(*Store, context.Context, *ClaimedRun) error{
		"Cancel": func(s *Store, ctx context.Context, r *ClaimedRun) error {
			return cancelled(s.Runs.Cancel(ctx, nil, r.RunID, Why{}, 0))
		},
		"Terminate": func(s *Store, ctx context.Context, r *ClaimedRun) error {
			return cancelled(s.Runs.Terminate(ctx, nil, r.RunID, Why{}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Database(t)
			direct := New(db.Pool, "test")
			r := running(t, direct, 1)[0]
			proxy := pgproxy.Start(t, db.DSN)
			drop := proxy.DropRequest(pgproxy.Exactly("commit"))
			var tries atomic.Int64
			s := New(poolWith(t, proxy.DSN(), func(c *pgxpool.Config) {
				c.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) {
					if tries.Add(1) == 2 {
						happened(t, drop)
						f := &Flush{Finishes: []*Finish{finish(r)}}
						for f.Finishes[0].Outcome != Done { // until the server has noticed, the run is locked
							if err := direct.Records.Flush(t.Context(), f); err != nil {
								t.Error(err)
								break
							}
						}
					}
					return true, nil
				}
			}), "test")
			err := verb(s, t.Context(), r)
			if got := readRow(t, db.Pool, r.RunID).Status; got != Completed {
				t.Fatalf("INVALID: the run is %s", got)
			}
			if !errors.Is(err, ErrRunFinished) {
				t.Errorf("error %v of a run that completed, want ErrRunFinished", err)
			}
		})
	}
}

func TestLostStepTx(t *testing.T) {
	eachLoss(t, func(t *testing.T, lose func(*pgproxy.Proxy, string) *pgproxy.Drop, done bool) {
		s, direct, proxy := losing(t)
		exec(t, direct.pool, `CREATE TABLE public.ledger (n int)`)
		r := running(t, direct, 1)[0]
		work := func() error {
			return pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
				if _, err := tx.Exec(t.Context(), `INSERT INTO ledger VALUES (1)`); err != nil {
					return err
				}
				_, err := s.Records.WriteIn(t.Context(), tx, nil, record(r, "step", "x"))
				return err
			})
		}
		drop := lose(proxy, "commit")
		wantAway(t, work())
		happened(t, drop)
		row, holds, err := s.Records.StepResult(t.Context(), held(r), "step", 1)
		if err != nil || !holds || (row != nil) != done {
			t.Fatalf("found %+v, holds %t, error %v; the server did it: %t", row, holds, err, done)
		}
		if row == nil {
			if err := work(); err != nil {
				t.Fatal(err)
			}
		}
		if n := one[int](t, direct.pool, `SELECT count(*) FROM ledger`); n != 1 {
			t.Errorf("%d rows of the user's, want 1", n)
		}
	})
}

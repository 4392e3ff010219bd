package store

import (
	"context"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/pgproxy"
)

func TestLostStartWithAPolicy(t *testing.T) {
	eachLoss(t, func(t *testing.T, _ func(*pgproxy.Proxy, string) *pgproxy.Drop, done bool) {
		lose := (*pgproxy.Proxy).DropRequest
		if done {
			lose = (*pgproxy.Proxy).DropAck
		}
		for name, change := range map[string]func(*NewRun){
			"RejectActive": ifActive(RejectActive), "RejectEnded": ifEnded(RejectEnded),
			"StartIfFailed": ifEnded(StartIfFailed), "ReplaceActive": ifActive(ReplaceActive),
			"ReplaceElseReject": func(r *NewRun) { r.IfActive, r.IfEnded = ReplaceActive, RejectEnded },
		} {
			for _, part := range []string{
				"INSERT INTO kagzi.workflow_runs", "coalesce(r.cancel_requested_at, CASE endings.act",
				"commit",
			} {
				match := pgproxy.Contains(part)
				if part == "commit" {
					match = pgproxy.Exactly(part) // begin names READ COMMITTED
				}
				replaces := strings.HasPrefix(name, "Replace")
				if name == "RejectActive" && part == "commit" || !replaces && strings.HasPrefix(part, "coalesce") {
					continue // it has no such statement
				}
				s, direct, proxy := losing(t)
				var old uuid.UUID
				if replaces {
					old = start(t, direct, newRun(withID("id"), withHash("other")))[0]
				}
				run := newRun(withID("id"), change)
				drop := lose(proxy, match)
				out, err := s.Starts.Start(t.Context(), nil, []NewRun{run})
				happened(t, drop)
				if err != nil || out[0].RunID != run.RunID || out[0].Existed || out[0].Replaced != old {
					t.Errorf("%s, %s: %+v, %v; want %v in the place of %v", name, part, out, err, run.RunID, old)
				}
				if n := one[int](t, direct.pool, `SELECT count(*) FROM kagzi.workflow_runs
					WHERE status = 'PENDING'`); n != 1 {
					t.Errorf("%s, %s: %d active runs, want 1", name, part, n)
				}
			}
		}
	})
}

// The answer is lost, and before the start is repeated the run is over: it is the start's own all the same.
func TestLostStartOfARunThatEnds(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*NewRun){
		"RejectEnded": ifEnded(RejectEnded), "StartIfFailed": ifEnded(StartIfFailed),
		"ReplaceActive": ifActive(ReplaceActive),
		"Both":          func(r *NewRun) { r.IfActive, r.IfEnded = RejectActive, RejectEnded },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, direct, proxy := losing(t)
			run := newRun(withID("id"), change)
			inserts := 0
			var failed error
			drop := proxy.DropAck(pgproxy.Exactly("commit"))
			proxy.DropAck(func(_ int, sql string) bool { // sees every statement, and loses none
				if strings.Contains(sql, "INSERT INTO kagzi.workflow_runs") {
					inserts++
				}
				if inserts == 2 {
					inserts++
					ctx := context.WithoutCancel(t.Context())
					var c Claim
					if c, failed = direct.Claims.Claim(ctx, request(1)); len(c.Runs) == 1 {
						failed = direct.Records.Flush(ctx, &Flush{Finishes: []*Finish{finish(c.Runs[0])}})
					}
				}
				return false
			})
			out, err := s.Starts.Start(t.Context(), nil, []NewRun{run})
			happened(t, drop)
			proxy.Disarm()
			if err != nil || failed != nil || out[0] != (StartedRun{RunID: run.RunID}) {
				t.Errorf("%+v, %v, %v", out, err, failed)
			}
			if row := readRow(t, direct.pool, run.RunID); row.Status != Completed {
				t.Errorf("row %+v: the test shows nothing", row)
			}
			if n := one[int](t, direct.pool, `SELECT count(*) FROM kagzi.workflow_runs`); n != 1 {
				t.Errorf("%d runs", n)
			}
		})
	}
}

func TestLostStart(t *testing.T) {
	eachLoss(t, func(t *testing.T, lose func(*pgproxy.Proxy, string) *pgproxy.Drop, _ bool) {
		for name, runs := range map[string][]NewRun{
			"ByRunID": {newRun()}, "ByExternalID": {newRun(withID("id"))}, "Many": many(5),
			"ManyWithIDs": {newRun(withID("a")), newRun(withID("b"))},
		} {
			s, direct, proxy := losing(t)
			part := "INSERT INTO kagzi.workflow_runs"
			if name == "ManyWithIDs" {
				part = "commit"
			}
			drop := lose(proxy, part)
			started, err := s.Starts.Start(t.Context(), nil, runs)
			happened(t, drop)
			if err != nil {
				t.Fatalf("%s: %v: a start checks by itself", name, err)
			}
			for i, r := range started {
				if r.RunID != runs[i].RunID || r.Existed {
					t.Errorf("%s: run %d is %+v", name, i, r)
				}
			}
			if n := one[int](t, direct.pool, `SELECT count(*) FROM kagzi.workflow_runs`); n != len(runs) {
				t.Errorf("%s: %d runs, want %d", name, n, len(runs))
			}
			// A caller that starts anew, with a new run ID, finds the run by its external ID.
			if name == "ByExternalID" {
				again, err := s.Starts.Start(t.Context(), nil, []NewRun{newRun(withID("id"))})
				if err != nil || again[0].RunID != runs[0].RunID || !again[0].Existed {
					t.Errorf("%s: again %+v, error %v", name, again, err)
				}
			}
		}
	})
}

package undo_test

import (
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/kind"
)

// TestLostAnswersOfCompensations loses each statement about compensations, or its answer.
func TestLostAnswersOfCompensations(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]func() pgproxy.Match{
		"Registration": func() pgproxy.Match { return pgproxy.Contains("NULLIF(u.call, '')") },
		"Finish":       func() pgproxy.Match { return pgproxy.Contains("u.status, u.output") },
		"Look":         func() pgproxy.Match { return pgproxy.Contains("SELECT DISTINCT ON (k.step_id)") },
		"Start": func() pgproxy.Match {
			return pgproxy.After(pgproxy.Contains("SET child_run_id = $5"), pgproxy.Exactly("commit"))
		},
		"Cancel": func() pgproxy.Match {
			return pgproxy.After(pgproxy.Contains("jsonb_build_object('status'"), pgproxy.Exactly("commit"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			kit.EachLoss(t, func(t *testing.T, l *kit.Lossy) {
				direct := &kit.Kit{T: t, Ctx: kit.Context(t), Pool: l.Db.Pool, Client: kit.NewClient(t, l.Db.Pool)}
				k := &kit.Kit{T: t, Ctx: direct.Ctx, Pool: l.Db.Pool, Client: l.Client(t, 8)}
				j := &kit.Journal{}
				then := kit.Breaks
				if name == "Cancel" {
					then = kit.SleepLong
				}
				drop := l.Lose(m())
				kit.Serve(k, kit.Travel, kit.Trip(j, then))
				kit.ServeCancellations(direct, j, nil)
				run := kit.Begin(direct, kit.Travel, 7)
				if name == "Cancel" {
					k.WaitStatus(run.ID(), kagzi.StatusSleeping)
					k.Cancel(run.ID())
				}
				<-drop.Done()
				if _, err := run.Result(k.Ctx); kagzi.KindOf(err) != kind.Unknown &&
					kagzi.KindOf(err) != kind.Cancelled {
					t.Errorf("the run ended with %v", err)
				}
				j.Want(t, kit.Compensated)
			})
		})
	}
}

package kagzi

import (
	"testing"

	"github.com/kagzi/kagzi/internal/pgproxy"
)

// TestLostAnswersOfCompensations loses each statement about compensations, or its answer.
func TestLostAnswersOfCompensations(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]func() pgproxy.Match{
		"Registration": func() pgproxy.Match { return pgproxy.Contains("NULLIF(u.call, '')") },
		"Finish":       func() pgproxy.Match { return pgproxy.Contains("SET output = l.output") },
		"Look":         func() pgproxy.Match { return pgproxy.Contains("SELECT DISTINCT ON (k.step_id)") },
		"Start": func() pgproxy.Match {
			return pgproxy.After(pgproxy.Contains("SET child_run_id = $5"), pgproxy.Exactly("commit"))
		},
		"Cancel": func() pgproxy.Match {
			return pgproxy.After(pgproxy.Contains("jsonb_build_object('status'"), pgproxy.Exactly("commit"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachLoss(t, func(t *testing.T, l *lossy) {
				direct := &kit{t: t, ctx: testContext(t), pool: l.db.Pool, c: newTestClient(t, l.db.Pool)}
				k := &kit{t: t, ctx: direct.ctx, pool: l.db.Pool, c: l.client(t, 8)}
				j := &journal{}
				then := breaks
				if name == "Cancel" {
					then = sleepLong
				}
				drop := l.lose(m())
				serve(k, travel, trip(j, then))
				serveCancellations(direct, j, nil)
				run := begin(direct, travel, 7)
				if name == "Cancel" {
					k.waitStatus(run.ID(), StatusSleeping)
					k.cancel(run.ID())
				}
				<-drop.Done()
				if _, err := run.Result(k.ctx); KindOf(err) != KindUnknown && KindOf(err) != KindCancelled {
					t.Errorf("the run ended with %v", err)
				}
				j.want(t, undone)
			})
		})
	}
}

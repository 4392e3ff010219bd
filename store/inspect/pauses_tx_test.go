package inspect

import (
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/store"
)

// The answer to the commit is lost, or the commit: each call does its work once.
func TestLostPause(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*pgproxy.Proxy, pgproxy.Match) *pgproxy.Drop{"Answer": (*pgproxy.Proxy).
		DropAck, "Request": (*pgproxy.Proxy).DropRequest} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, direct, proxy := losing(t)
			losing := func(what string, call func() error) {
				t.Helper()
				drop := lose(proxy, pgproxy.Exactly("commit"))
				if err := call(); err != nil {
					t.Errorf("%s: %v", what, err)
				}
				happened(t, drop)
			}
			worker := register(t, direct).ID
			ids := start(t, direct, newRun(), newRun(ofKey("a")))
			for _, p := range []store.Pause{{Parks: true}, {Queue: "queue", Key: store.Key{Name: "a"}, Parks: true}} {
				losing("pause", func() error {
					workers, err := s.Pauses.Pause(t.Context(), nil, p)
					if !slices.Equal(workers, []uuid.UUID{worker}) {
						t.Errorf("workers %v", workers)
					}
					return err
				})
				if got := claim(t, direct, keyedRequest(9)); slices.Contains(runIDs(got.Runs), ids[1]) ||
					got.Keys.Change != 0 {
					t.Errorf("paused: %+v", got)
				}
				losing("unpause", func() error {
					out, err := s.Pauses.Unpause(t.Context(), nil, p)
					if !slices.Equal(out.Workers, []uuid.UUID{worker}) || len(out.Queues) != 1 {
						t.Errorf("to be told %+v", out)
					}
					return err
				})
				if got := runIDs(claim(t, direct, keyedRequest(9)).Runs); !slices.Contains(got, ids[1]) {
					t.Errorf("claimed %v of %v", got, ids)
				}
				exec(t, direct.pool, `UPDATE kagzi.workflow_runs SET status = 'PENDING', slot = NULL,
					available_at = now()`)
				exec(t, direct.pool, `UPDATE kagzi.run_keys SET available_at = now()`)
			}
			losing("pause a run", func() error { return s.Pauses.PauseRun(t.Context(), nil, ids[0], store.Why{}) })
			losing("unpause a run", func() error {
				run, err := s.Pauses.UnpauseRun(t.Context(), nil, ids[0], store.Why{})
				if run.RunID != ids[0] || run.Queue != "queue" {
					t.Errorf("to be told %+v", run)
				}
				return err
			})
			if events, err := direct.Runs.Events(t.Context(), ids[0]); err != nil || len(events) != 2 ||
				events[0].Event != store.EventPaused || events[1].Event != store.EventUnpaused {
				t.Errorf("events %+v, %v", events, err)
			}
			if n, err := direct.View.Pauses(t.Context(), direct.pool, 9); err != nil || len(n) > 0 {
				t.Errorf("left %+v, %v", n, err)
			}
		})
	}
}

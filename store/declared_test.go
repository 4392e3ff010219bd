package store

import (
	"context"
	"errors"
	"testing"
	"time"
)

// A limit that was neither declared nor set lets no step begin. Its steps wait, and begin once it is set.
func TestLimitThatIsNotSet(t *testing.T) {
	t.Parallel()
	s := open(t)
	runs := running(t, s, 2)
	for _, r := range runs {
		out := serve(t, s, "api", LimitRequest{Asks: placesOf(r)})
		if a := out.Answers[0]; a.Granted || a.Lost || !a.At.IsZero() {
			t.Errorf("a limit that was not set answers %+v", out)
		}
	}
	if names, err := s.Limits.Waiting(t.Context()); err != nil || len(names) > 0 {
		t.Errorf("a coordinator has to serve %v (%v)", names, err)
	}
	setLimit(t, s, StepLimit{Name: "api", MaxRunning: 1})
	out := serve(t, s, "api", LimitRequest{Asks: placesOf(runs...)})
	if got := granted(out.Answers); len(got) != 1 || got[0] != 0 {
		t.Errorf("of a limit with one slot, the steps %v begin: %+v", got, out)
	}
	serve(t, s, "api", LimitRequest{Leaves: placesOf(runs...)})
	if found, used, err := s.Limits.Delete(t.Context(), "api", Why{}); !found || used || err != nil {
		t.Errorf("Delete: %v, %v, %v", found, used, err)
	}
}

// Code changes nothing that an operator has set, until the operator takes that back.
func TestDeclaredLimits(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]struct {
		declare, set func(ctx context.Context, s *Store, most int) error
		reset        func(ctx context.Context, s *Store) error
		most         string // the statement that reads it
	}{
		"Limit": {
			func(ctx context.Context, s *Store, most int) error {
				_, err := s.Limits.Declare(ctx, StepLimit{Name: "x", Burst: 1, MaxRunning: most})
				return err
			},
			func(ctx context.Context, s *Store, most int) error {
				return s.Limits.Set(ctx, StepLimit{Name: "x", Burst: 1, MaxRunning: most}, Why{"incident", "ada"})
			},
			func(ctx context.Context, s *Store) error { return s.Limits.Reset(ctx, "x", Why{}) },
			`SELECT max_running FROM kagzi.limits WHERE limit_name = 'x'`,
		},
		"Queue": {
			func(ctx context.Context, s *Store, most int) error {
				_, err := s.Limits.DeclareQueue(ctx, QueueLimits{Queue: "x", MaxRunning: most})
				return err
			},
			func(ctx context.Context, s *Store, most int) error {
				return s.Limits.SetQueue(ctx, QueueLimits{Queue: "x", MaxRunning: most}, Why{"incident", "ada"})
			},
			func(ctx context.Context, s *Store) error { return s.Limits.ResetQueue(ctx, "x", Why{}) },
			`SELECT max_running FROM kagzi.queues WHERE task_queue = 'x'`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			holds := func(want int, after string, err error) {
				t.Helper()
				var most int
				if err == nil {
					err = s.pool.QueryRow(t.Context(), kind.most).Scan(&most)
				}
				if err != nil || most != want {
					t.Errorf("after %s, %d are allowed (%v), want %d", after, most, err, want)
				}
			}
			if err := kind.reset(t.Context(), s); !errors.Is(err, ErrNotDeclared) {
				t.Errorf("a reset of nothing: %v", err)
			}
			holds(20, "a declaration", kind.declare(t.Context(), s, 20))
			holds(30, "another one", kind.declare(t.Context(), s, 30))
			holds(1, "a change by an operator", kind.set(t.Context(), s, 1))
			holds(1, "the start of a new version", kind.declare(t.Context(), s, 40))
			holds(2, "another change", kind.set(t.Context(), s, 2))
			holds(40, "a reset", kind.reset(t.Context(), s))
			holds(50, "a declaration after it", kind.declare(t.Context(), s, 50))
			holds(50, "a second reset", kind.reset(t.Context(), s))
			var events string
			if err := s.pool.QueryRow(t.Context(), `SELECT string_agg(concat_ws(' → ', c->>'from', c->>'to'), ', '
				ORDER BY occurred_at) FROM kagzi.audit_log, jsonb_array_elements(changes) c
				WHERE c->>'field' = 'origin'`).Scan(&events); err != nil ||
				events != "declared, declared → set, set → declared" {
				t.Errorf("the log says %q (%v)", events, err)
			}
		})
	}
}

// What an operator has set before the code declares anything stays, too.
func TestSetBeforeItIsDeclared(t *testing.T) {
	t.Parallel()
	s := open(t)
	setLimit(t, s, StepLimit{Name: "x", MaxRunning: 1, Every: time.Second, Burst: 3})
	by, err := s.Limits.Declare(t.Context(), StepLimit{Name: "x", MaxRunning: 5, Burst: 1, RetryAfter: true})
	if err != nil || by == nil || by.At.IsZero() {
		t.Fatalf("set by %+v, %v", by, err)
	}
	if err := s.Limits.Reset(t.Context(), "x", Why{}); err != nil {
		t.Fatal(err)
	}
	var all string
	if err := s.pool.QueryRow(t.Context(), `SELECT concat_ws(' ', every, burst, max_running, retry_after)
		FROM kagzi.limits`).Scan(&all); err != nil || all != "0 1 5 t" {
		t.Errorf("after a reset it is %q (%v)", all, err)
	}
}

// An operator sets limits at the moment when code first declares them.
func TestDeclareAtTheTimeOfSet(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		set, read string
		declare   func(ctx context.Context, s *Store) (*SetBy, error)
	}{
		"Limit": {
			`INSERT INTO kagzi.limits (limit_name, namespace_id, max_running, set_by, next_at)
			VALUES ('x', $1, 1, '{"actor": "ada"}', now())`,
			`SELECT max_running FROM kagzi.limits WHERE limit_name = 'x'`,
			func(ctx context.Context, s *Store) (*SetBy, error) {
				return s.Limits.Declare(ctx, StepLimit{Name: "x", Burst: 1, MaxRunning: 20})
			},
		},
		"Queue": {
			`INSERT INTO kagzi.queues (task_queue, namespace_id, max_running, set_by)
			VALUES ('x', $1, 1, '{"actor": "ada"}')`,
			`SELECT max_running FROM kagzi.queues WHERE task_queue = 'x'`,
			func(ctx context.Context, s *Store) (*SetBy, error) {
				return s.Limits.DeclareQueue(ctx, QueueLimits{Queue: "x", MaxRunning: 20})
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			tx := begin(t, s)
			exec(t, tx, tt.set, s.namespace)
			meetsLock(t, s, func(ctx context.Context) {
				if by, err := tt.declare(ctx, s); err != nil || by == nil || by.Actor != "ada" {
					t.Errorf("set by %+v, %v", by, err)
				}
			}, func() { commit(t, tx) })
			var most int
			if err := s.pool.QueryRow(t.Context(), tt.read).Scan(&most); err != nil || most != 1 {
				t.Errorf("ada has allowed 1, and it is %d (%v)", most, err)
			}
		})
	}
}

// Nothing is left of limits that an operator takes away, and that no code declares.
func TestQueueThatIsSetToNothing(t *testing.T) {
	t.Parallel()
	s := open(t)
	for _, most := range []int{1, 0} {
		if err := s.Limits.SetQueue(t.Context(), QueueLimits{Queue: "x", MaxRunning: most}, Why{}); err != nil {
			t.Fatal(err)
		}
	}
	if by, err := s.Limits.DeclareQueue(t.Context(), QueueLimits{Queue: "x", MaxRunning: 2}); by != nil || err != nil {
		t.Errorf("set by %+v, %v", by, err)
	}
}

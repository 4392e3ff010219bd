package inspect

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/store/internal/plans"
)

const loadAudit = `
INSERT INTO kagzi.audit_log (entry_id, namespace_id, occurred_at, action, kind, name, external_id, actor)
SELECT gen_random_uuid(), CASE WHEN g % 10 = 0 THEN 'test' ELSE 'other' END, now() - g * interval '1 second',
	'CANCELLED', 'run', 'run-' || g, 'order-' || g, 'actor-' || g / 100
FROM generate_series(1, 50000) AS g`

// A page of the audit log is read from an index, whatever it is filtered by.
func TestPlansOfAudit(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t, dbtest.Unchecked())
	s := newBoth(db.Pool, "test")
	exec(t, s.pool, loadAudit)
	exec(t, s.pool, `ANALYZE kagzi.audit_log`)
	none := uuid.Nil.String()
	for name, tt := range map[string]struct {
		args    []any
		indexes map[string][]string
	}{
		"All": {
			[]any{"test", "", "", "", "", "", 0, 0, none, 0, 100},
			map[string][]string{"audit_log_time": {"namespace_id"}},
		},
		"After": {
			[]any{"test", "", "", "", "", "", 0, 0, uuid.Max.String(), time.Now().UnixMicro(), 100},
			map[string][]string{"audit_log_time": {"namespace_id", "occurred_at"}},
		},
		"Since": {
			[]any{"test", "", "", "", "", "", time.Now().Add(-time.Hour).UnixMicro(), 0, none, 0, 100},
			map[string][]string{"audit_log_time": {"namespace_id", "occurred_at"}},
		},
		"Name": {
			[]any{"test", "run", "order-500", "", "", "", 0, 0, none, 0, 100},
			map[string][]string{
				"audit_log_name":        {"namespace_id", "name"},
				"audit_log_external_id": {"namespace_id", "external_id"},
			},
		},
		"Actor": {
			[]any{"test", "", "", "", "", "actor-7", 0, 0, none, 0, 100},
			map[string][]string{"audit_log_actor": {"namespace_id", "actor"}},
		},
	} {
		p := plans.Explain(t, s.pool, "EXPLAIN (FORMAT JSON)", listAudit, tt.args...)
		if wrong := p.Wrong(plans.Statement{SQL: listAudit, Indexes: tt.indexes}); len(wrong) > 0 {
			t.Errorf("%s: %q", name, wrong)
		}
		read := false
		p.Each(func(n *plans.Node) { read = read || n.Index != "" })
		if !read {
			t.Errorf("%s: no index is read", name)
		}
	}
}

// Entries are pruned by age, in portions, in their namespace.
func TestPruneAudit(t *testing.T) {
	t.Parallel()
	s := open(t)
	for _, queue := range []string{"a", "b", "c"} {
		if err := s.Limits.SetQueue(t.Context(), store.QueueLimits{Queue: queue, MaxRunning: 1},
			store.Why{Actor: "ada"}); err != nil {
			t.Fatal(err)
		}
	}
	exec(t, s.pool, `UPDATE kagzi.audit_log SET occurred_at = now() - interval '2 hours' WHERE name <> 'c'`)
	for i, want := range []int64{0, 0, 1, 1, 0} {
		of, keep := s, time.Hour
		switch i {
		case 0:
			of = newBoth(s.pool, "other")
		case 1:
			keep = 3 * time.Hour
		}
		if n, err := of.Deletions.PruneAudit(t.Context(), keep, 1); n != want || err != nil {
			t.Errorf("%d: pruned %d, %v; want %d", i, n, err, want)
		}
	}
	if page, err := s.Audit(t.Context(), AuditFilter{Limit: 10}); err != nil || len(page) != 1 || page[0].Name != "c" {
		t.Errorf("left %+v, %v", page, err)
	}
}

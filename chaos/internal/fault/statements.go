package fault

import (
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/kagzi/kagzi/internal/pgproxy"
)

// A statement is a kind of statement that workers and clients send.
type statement struct {
	name  string
	part  string // of its text, within what pg_stat_activity shows of it
	table string // that it writes or locks
}

// statements are the kinds that faults choose from. Each part is in no other statement of Kagzi.
var statements = []statement{
	{"a claim", "SELECT CASE WHEN l.limited THEN 0", "kagzi.workflow_runs"},
	{
		"a record of a step", "SELECT u.run_id, u.step_id, u.attempt_number, l.namespace_id, u.status, u.step_kind",
		"kagzi.step_runs",
	},
	{"a run's success", "SET status = 'COMPLETED', finished_at = statement_timestamp()", "kagzi.workflow_runs"},
	{"a suspension", "u.status, u.awaited, u.not_before", "kagzi.workflow_runs"},
	{"a heartbeat", "SET heartbeat_at = clock.now", "kagzi.workers"},
	{"an extension of leases", "THEN r.deadline_at + interval '3 seconds' END) AS until", "kagzi.workflow_runs"},
	{"a start", "CASE WHEN s.claims THEN s.claimed_with END AS lease", "kagzi.workflow_runs"},
}

// named returns the statement with a name.
func named(name string) statement {
	return statements[slices.IndexFunc(statements, func(s statement) bool { return s.name == name })]
}

// match returns a Match of the statement's nth execution.
func (s statement) match(n int) pgproxy.Match { return pgproxy.Nth(n, pgproxy.Contains(s.part)) }

// commit returns a Match of the first COMMIT of a transaction that has executed the statement.
func (s statement) commit() pgproxy.Match {
	return pgproxy.After(pgproxy.Contains(s.part), func(_ int, sql string) bool {
		return strings.EqualFold(strings.TrimSpace(sql), "commit")
	})
}

// someStatement returns a statement that r chooses from those with the names, or from all.
func someStatement(r *rand.Rand, names ...string) statement {
	if len(names) > 0 {
		return named(names[r.IntN(len(names))])
	}
	return statements[r.IntN(len(statements))]
}

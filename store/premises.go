package store

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/kagzi/kagzi/internal/pg"
)

// ErrUnfounded reports that a row is missing on which the writes of a run build: see [Premise].
var ErrUnfounded = errors.New("the server has lost rows on which the run builds")

// A Premise is a row on which the writes of a run build. A failover to an asynchronous standby loses the last commits,
// and a worker that kept the run in memory would write over the hole. The log of a server loses only its end. So if
// the last record is there that a worker knows to be committed, all before it are. A flush asks for that record, in
// its transaction, unless its connection vouches for it.
type Premise struct {
	RunID    uuid.UUID
	Step     string // the record's
	Attempt  int
	Ended    bool  // the record is not RUNNING
	Position int64 // of a COMPENSATION, a VALUE or a CHECKPOINT, or of the later one that has replaced it; zero: any
	By       Witness
}

// A Witness is a connection to a server, as it was when it sent something. No backend outlives a crash of its server.
// So a connection that was open to the same server before a record was sent vouches for it. The zero Witness vouches
// for nothing.
type Witness struct {
	server string    // when it was started: no other server has the same time
	opened time.Time // the connection was open then
	sent   time.Time
}

// vouches reports whether the server of w has the writes of earlier, a witness, if they were committed.
func (w Witness) vouches(earlier Witness) bool {
	return w.server != "" && w.server == earlier.server && w.opened.Before(earlier.sent)
}

const startOfServer = `SELECT pg_postmaster_start_time()::text, pg_backend_pid()`

// witnessOf returns the witness of what conn sends next. It asks the server once for each connection. A pooler may
// pass each transaction to another server, and on Citus the rows are on other servers: then there is no witness.
func witnessOf(ctx context.Context, conn *pgx.Conn) Witness {
	const key = "kagzi: witness"
	known := conn.PgConn().CustomData()
	w, ok := known[key].(Witness)
	if !ok {
		distributed, err := pg.HasCitus(ctx, conn)
		var pid uint32
		if err == nil {
			err = conn.QueryRow(ctx, startOfServer).Scan(&w.server, &pid)
		}
		if err != nil {
			return Witness{} // the next statement fails, too
		}
		w.opened = time.Now()
		if distributed || pid != conn.PgConn().PID() {
			w = Witness{}
		}
		known[key] = w
	}
	w.sent = time.Now()
	return w
}

// PremiseOf returns the premise that a record is in the table, which by has sent.
func PremiseOf(r *StepRow, by Witness) Premise {
	p := Premise{RunID: r.RunID, Step: r.StepID, Attempt: r.Attempt, Ended: r.Status != Running, By: by}
	if r.Kind == KindCompensation || Replaces(r.Kind) {
		p.Position = r.Position
	}
	return p
}

// A check is a question of a flush about a row: whether it is there, or whether a run has news.
type check struct {
	of     uuid.UUID // the run that builds on the row
	run    uuid.UUID // of the row
	kind   string    // of the row: recordThere, …
	name   string    // of the record's step, or the message
	number int64     // the record's attempt, the message's sequence, the run's wake-ups
	mark   int64     // the record's position, or when the message was stored or the child ended; zero: any
	ended  bool
	next   int // the epoch that the flush begins: then the records have other IDs; zero: it begins none
}

const (
	hasNews      = "news"    // the run was cancelled or paused
	hasWakeups   = "wakeups" // the run's row counts no fewer wake-ups
	recordThere  = "record"
	messageThere = "message"
	childEnded   = "child"
)

// The rows that are missing, and the runs that have news.
const checked = `
FROM unnest($2::uuid[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bool[], $8::int[]) WITH ORDINALITY
	AS u (run_id, kind, name, number, mark, ended, next, place)
WHERE CASE u.kind
	WHEN 'news' THEN (
		SELECT 1 - count(*) FROM kagzi.workflow_runs r
		WHERE r.run_id = u.run_id AND r.namespace_id = $1 AND (r.cancel_requested_at IS NOT NULL
			OR r.paused_at IS NOT NULL))
	WHEN 'record' THEN (
		SELECT count(*) FROM kagzi.step_runs s
		WHERE s.run_id = u.run_id AND s.namespace_id = $1 AND s.step_id = u.name AND s.attempt_number = u.number::int
			AND (s.status <> 'RUNNING' OR NOT u.ended) AND s.position >= u.mark) + (
		SELECT count(*) FROM kagzi.workflow_runs r
		WHERE u.next > 0 AND r.run_id = u.run_id AND r.namespace_id = $1 AND r.epoch >= u.next)
	WHEN 'message' THEN (
		SELECT count(*) FROM kagzi.signals g
		WHERE g.run_id = u.run_id AND g.namespace_id = $1 AND g.name = u.name AND g.sequence = u.number
			AND g.received_at = timestamptz 'epoch' + u.mark * interval '1 microsecond')
	WHEN 'child' THEN (
		SELECT count(*) FROM kagzi.workflow_runs c
		WHERE c.run_id = u.run_id AND c.namespace_id = $1
			AND c.finished_at = timestamptz 'epoch' + u.mark * interval '1 microsecond')
	ELSE (
		SELECT count(*) FROM kagzi.workflow_runs r
		WHERE r.run_id = u.run_id AND r.namespace_id = $1 AND r.wakeups >= u.number)
	END = 0`

// The transaction fails if a row is missing: so none of its writes takes place. A text that is no number is an error
// in every language of the server.
const (
	checkPremises = `SELECT u.place, u.kind = 'news' OR concat('` + unfounded + `', u.run_id)::int IS NULL` + checked
	findMissing   = `SELECT u.place` + checked + ` AND u.kind <> 'news'`
	unfounded     = `kagzi: there is no row on which a run builds: `
)

var checkColumns = columnsOf(checkPremises,
	uuids("run_id", func(c check) uuid.UUID { return c.run }),
	texts("kind", func(c check) string { return c.kind }),
	texts("name", func(c check) string { return c.name }),
	bigints("number", func(c check) int64 { return c.number }),
	bigints("mark", func(c check) int64 { return c.mark }),
	bools("ended", func(c check) bool { return c.ended }),
	ints("next", func(c check) int { return c.next }),
)

// checksOf returns the checks of rows that are known to be in the table.
func checksOf(premises []Premise) (checks []check) {
	for _, p := range premises {
		checks = append(checks, check{
			of: p.RunID, run: p.RunID, kind: recordThere, name: p.Step,
			number: int64(p.Attempt), mark: p.Position, ended: p.Ended,
		})
	}
	return checks
}

// premises returns the checks of f's premises, and of what its writes have read: messages, ends of children, and
// wake-ups.
func (f *Flush) premises() []check {
	checks := checksOf(slices.DeleteFunc(slices.Clone(f.Premises), func(p Premise) bool { return f.By.vouches(p.By) }))
	for _, r := range f.Records {
		switch {
		case r.Read.IsZero():
		case r.Signal != "":
			checks = append(checks, check{
				of: r.RunID, run: r.RunID, kind: messageThere, name: r.Signal,
				number: r.Sequence, mark: pg.Epoch(r.Read),
			})
		default:
			checks = append(checks, check{of: r.RunID, run: r.ChildRunID, kind: childEnded, mark: pg.Epoch(r.Read)})
		}
	}
	for _, p := range f.Suspensions {
		if p.Next != nil { // an earlier flush, whose answer was lost, may have begun the epoch
			for i := range checks {
				if checks[i].of == p.RunID && checks[i].kind == recordThere {
					checks[i].next = p.Next.Epoch + 1
				}
			}
		}
		if p.Need > 0 && p.Seen > 0 {
			checks = append(checks, check{of: p.RunID, run: p.RunID, kind: hasWakeups, number: p.Seen})
		}
	}
	return checks
}

// missing returns the runs of which a row is missing.
func (s *conn) missing(ctx context.Context, tx pgx.Tx, checks []check) (map[uuid.UUID]bool, error) {
	runs := map[uuid.UUID]bool{}
	if len(checks) == 0 {
		return runs, nil
	}
	err := pg.Ask(ctx, tx, findMissing, checkColumns.args(s.namespace, checks), func(rows pgx.Rows) error {
		var place int
		_, err := pgx.ForEachRow(rows, []any{&place}, func() error {
			runs[checks[place-1].of] = true
			return nil
		})
		return err
	})
	return runs, err
}

// isUnfounded reports whether checkPremises has failed the transaction.
func isUnfounded(err error) bool {
	pe, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pe.Code == "22P02" && strings.Contains(pe.Message, unfounded)
}

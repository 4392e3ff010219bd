package store

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

// insert inserts the runs that do not exist yet, and finds the others: first by run ID, because the answer to an
// earlier try may have been lost, then by external ID. Each of the three is a statement of its own, because the one
// that inserts does not see commits that come after its snapshot. If none of them finds or inserts a run, the active
// run has ended in between, and insert begins again.
func (s Starts) insert(ctx context.Context, db pg.DB, runs []NewRun) ([]StartedRun, error) {
	var due []DueRun // consumers of the starts
	out, err := s.insertAll(ctx, db, runs, &due)
	if err == nil && due != nil {
		if out[0].Ended == nil {
			out[0].Ended = &CancelledRuns{}
		}
		out[0].Ended.Due = append(out[0].Ended.Due, due...)
	}
	return out, err
}

func (s Starts) insertAll(ctx context.Context, db pg.DB, runs []NewRun, due *[]DueRun) ([]StartedRun, error) {
	out := make([]StartedRun, len(runs))
	todo := everyRun(runs)
	for range 100 {
		done, err := s.insertOnce(ctx, db, runs, todo, due)
		if err == nil {
			err = s.refuseEnded(ctx, db, out, runs, done)
		}
		if err == nil {
			err = s.admit(ctx, db, out, runs, done)
		}
		if err != nil {
			return nil, err
		}
		if todo = mark(out, runs, todo, done); len(todo) == 0 {
			return out, nil
		}
		if done, err = s.existing(ctx, db, runs, todo); err != nil {
			return nil, err
		}
		if todo = mark(out, runs, todo, done); len(todo) == 0 {
			return out, nil
		}
		if todo, err = s.adopt(ctx, db, out, runs, todo); err != nil {
			return nil, err
		}
		if len(todo) == 0 {
			return out, nil
		}
	}
	return nil, errors.New("the runs with these external IDs kept ending during the call: try again")
}

// mark sets the run ID of the runs in done, and returns the rest of todo.
func mark(out []StartedRun, runs []NewRun, todo []int, done map[uuid.UUID]bool) []int {
	var rest []int
	for _, i := range todo {
		if done[runs[i].RunID] {
			out[i].RunID = runs[i].RunID
		} else {
			rest = append(rest, i)
		}
	}
	return rest
}

// insertOnce inserts the runs of todo that do not exist yet. If db is no transaction, they must be one chunk.
func (s Starts) insertOnce(ctx context.Context, db pg.DB, runs []NewRun, todo []int,
	due *[]DueRun,
) (map[uuid.UUID]bool, error) {
	set := make(map[uuid.UUID]bool, len(todo))
	add := func(rows pgx.Rows) error {
		var id uuid.UUID
		_, err := pgx.ForEachRow(rows, []any{pg.UUIDTo(&id), nil, nil, nil},
			func() error { set[id] = true; return nil })
		return err
	}
	for _, chunk := range startChunks(runs, todo) { // one by one: the arguments are large
		b := &pgx.Batch{}
		some := pick(runs, slices.Sorted(slices.Values(chunk)))
		b.Queue(insertsOf(some), insertColumns.args(s.namespace, some)...) // due in the order of the call
		reads := append([]func(pgx.Rows) error{add}, s.publishStarts(b, some, due)...)
		if err := pg.Exchange(ctx, db, pg.Mode{Locks: lockSlice(ctx, len(todo))}, b, reads...); err != nil {
			return nil, err
		}
	}
	return set, nil
}

// pick returns the runs with the indexes in todo.
func pick(runs []NewRun, todo []int) []*NewRun {
	picked := make([]*NewRun, len(todo))
	for k, i := range todo {
		picked[k] = &runs[i]
	}
	return picked
}

const existingRuns = `
SELECT r.run_id
FROM unnest($2::uuid[]) AS u (run_id)
CROSS JOIN LATERAL (
	SELECT q.run_id FROM kagzi.workflow_runs q WHERE q.run_id = u.run_id AND q.namespace_id = $1 OFFSET 0
) r`

func (s Starts) existing(ctx context.Context, db pg.DB, runs []NewRun, todo []int) (set map[uuid.UUID]bool, err error) {
	ids := make([]uuid.UUID, len(todo))
	for k, i := range todo {
		ids[k] = runs[i].RunID
	}
	err = pg.Ask(ctx, db, existingRuns, []any{s.namespace, array(ids)}, func(rows pgx.Rows) error {
		set, err = ids2set(rows, nil)
		return err
	})
	return set, err
}

// adopt sets out to the active run that has the external ID, for each run of todo. It terminates the active runs that a
// policy replaces, and returns the indexes of the runs that are still to be inserted.
func (s Starts) adopt(ctx context.Context, db pg.DB, out []StartedRun, runs []NewRun, todo []int) ([]int, error) {
	externals := make([]string, 0, len(todo))
	for _, i := range todo {
		externals = append(externals, runs[i].ExternalID)
	}
	found, err := s.holders(ctx, db, activeByExternalID, externals)
	if err != nil {
		return nil, err
	}
	var rest []int
	var replace []*holder
	for _, i := range todo {
		r := &runs[i]
		h := found[r.ExternalID]
		switch {
		case h == nil:
			rest = append(rest, i)
		case r.IfActive == RejectActive:
			return nil, h.taken(r)
		case r.IfActive == ReplaceActive && h.typ == r.Type:
			rest, replace = append(rest, i), append(replace, h)
		case h.differs(r) == otherWorkflow,
			// messages go to the active run, whatever its input was
			h.differs(r) == otherInput && len(r.Messages) == 0 && r.IfActive != ReturnAnyInput:
			return nil, &IDConflict{r.ExternalID, h.id, h.typ, h.differs(r)}
		default:
			out[i] = StartedRun{RunID: h.id, Existed: true}
		}
	}
	if replace == nil {
		return rest, nil
	}
	ended, err := s.replace(ctx, db.(pgx.Tx), replace) // a start with this policy has a transaction
	if err != nil {
		return nil, err
	}
	for _, i := range rest {
		if h := found[runs[i].ExternalID]; h != nil && slices.Contains(ended.Ended, h.id) {
			out[i].Replaced, out[i].Ended = h.id, ended
			ended = &CancelledRuns{Ended: ended.Ended} // the first has the rest
		}
	}
	return rest, nil
}

func ids2set(rows pgx.Rows, err error) (map[uuid.UUID]bool, error) {
	if err != nil {
		return nil, err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, err
	}
	set := make(map[uuid.UUID]bool, len(ids))
	for _, id := range ids {
		set[id] = true
	}
	return set, nil
}

// everyRun returns the indexes of the runs in the order of their external IDs. They are inserted in this order: two
// starts with the same IDs in different orders would wait for each other.
func everyRun(runs []NewRun) []int {
	all := make([]int, len(runs))
	for i := range all {
		all[i] = i
	}
	slices.SortStableFunc(all, func(a, b int) int { return cmp.Compare(runs[a].ExternalID, runs[b].ExternalID) })
	return all
}

// Limits of one statement. The bytes are those of the inputs.
const (
	chunkRuns  = 10_000
	chunkBytes = 32 << 20
)

// startChunks divides todo into chunks, of which one statement inserts each.
func startChunks(runs []NewRun, todo []int) [][]int {
	var chunks [][]int
	from, size := 0, 0
	for k, i := range todo {
		if k > from && (k-from == chunkRuns || size+len(runs[i].Input) > chunkBytes) {
			chunks = append(chunks, todo[from:k])
			from, size = k, 0
		}
		size += len(runs[i].Input)
	}
	return append(chunks, todo[from:])
}

// publishStarts adds to b, which inserts the runs, the publishing of their starts, and returns its reader; nothing if
// no run publishes its events.
func (s Starts) publishStarts(b *pgx.Batch, runs []*NewRun, due *[]DueRun) []func(pgx.Rows) error {
	var ids []uuid.UUID
	for _, r := range runs {
		if r.Publishes {
			ids = append(ids, r.RunID)
		}
	}
	if ids == nil {
		return nil
	}
	b.Queue(publishRuns, s.runEvents(started, ids, make([]uuid.UUID, len(ids)))...)
	return []func(pgx.Rows) error{readSubscribers(due)}
}

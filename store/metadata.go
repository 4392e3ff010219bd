package store

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

// A metadataChange is what the records of a flush change in the metadata of one run.
type metadataChange struct {
	run, lease uuid.UUID
	tags       map[string]*string // nil: remove the tag
}

// The tags of r with those of u, of which null removes one. An operator may have given the run other tags than its code
// knows. If there are more than the 64 of a start, or more than its 16 KiB, those of the change stay, and the first of
// the others by name.
const mergedTags = `(
		SELECT jsonb_object_agg(t.key, t.value)
		FROM (
			SELECT e.key, e.value, row_number() OVER w AS place,
				sum(octet_length(e.key) + octet_length(e.value #>> '{}')) OVER w AS size
			FROM jsonb_each(coalesce(r.metadata, '{}') || given.tags) AS e (key, value)
			WHERE e.value <> 'null'
			WINDOW w AS (ORDER BY given.tags ? e.key DESC, e.key ROWS UNBOUNDED PRECEDING)
		) t
		WHERE t.place <= 64 AND t.size <= 16384
	)`

// The first change keeps the metadata of the start, which the run's code goes on to see.
const changeMetadata = `
WITH given AS MATERIALIZED (
	SELECT u.run_id, u.lease, u.tags::jsonb AS tags
	FROM unnest($2::uuid[], $3::uuid[], $4::text[]) AS u (run_id, lease, tags)
)
UPDATE kagzi.workflow_runs r
SET first_metadata = coalesce(r.first_metadata, r.metadata, '{}'),
	metadata = ` + mergedTags + `
FROM given
WHERE r.run_id = given.run_id AND r.namespace_id = $1 AND r.lease = given.lease AND r.status = 'RUNNING'`

var metadataColumns = columnsOf(changeMetadata,
	uuids("run_id", func(c *metadataChange) uuid.UUID { return c.run }),
	uuids("lease", func(c *metadataChange) uuid.UUID { return c.lease }),
	texts("tags", func(c *metadataChange) string {
		tags, _ := json.Marshal(c.tags) // strings
		return string(tags)
	}),
)

// metadataChanges returns the changes that the records make, one for each run, in the order of the runs.
func metadataChanges(records []*Record) (changes []*metadataChange) {
	var of []*Record
	for _, r := range records {
		if r.Kind == KindMetadata {
			of = append(of, r)
		}
	}
	slices.SortStableFunc(of, func(a, b *Record) int {
		return cmp.Or(bytes.Compare(a.RunID[:], b.RunID[:]), cmp.Compare(a.Position, b.Position))
	})
	for _, r := range of {
		if n := len(changes); n == 0 || changes[n-1].run != r.RunID {
			changes = append(changes, &metadataChange{r.RunID, r.Lease, map[string]*string{}})
		}
		changes[len(changes)-1].apply(r.Output)
	}
	return changes
}

// apply adds the change that the output of a METADATA records: an empty value removes a tag.
func (c *metadataChange) apply(output []byte) {
	var tags map[string]string
	_ = json.Unmarshal(output, &tags) // the engine wrote a map of strings
	for key, value := range tags {
		c.tags[key] = &value
		if value == "" {
			c.tags[key] = nil
		}
	}
}

const recordedMetadata = `
SELECT s.output
FROM kagzi.step_runs s
WHERE s.run_id = $2 AND s.namespace_id = $1 AND s.step_kind = 'METADATA'
ORDER BY s.position`

const setMetadata = `
WITH given AS MATERIALIZED (SELECT $3::text::jsonb AS tags)
UPDATE kagzi.workflow_runs r
SET first_metadata = coalesce(r.first_metadata, r.metadata, '{}'),
	metadata = ` + mergedTags + `
FROM given
WHERE r.run_id = $2 AND r.namespace_id = $1`

// copyMetadata gives a fork the changes of metadata that its history has.
func (s Runs) copyMetadata(ctx context.Context, tx pgx.Tx, fork uuid.UUID) error {
	var outputs [][]byte
	err := pg.Ask(ctx, tx, recordedMetadata, []any{s.namespace, fork}, pg.Collect(&outputs, pgx.RowTo[[]byte]))
	if err != nil || outputs == nil {
		return err
	}
	c := metadataChange{tags: map[string]*string{}}
	for _, output := range outputs {
		c.apply(output)
	}
	tags, err := json.Marshal(c.tags)
	if err != nil {
		return err
	}
	return pg.Ask(ctx, tx, setMetadata, []any{s.namespace, fork, string(tags)}, nil)
}

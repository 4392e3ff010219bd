package replay

import (
	"encoding/json"
	"maps"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/store"
)

// SetMetadata changes the tags given, in the transaction of its record. check returns why the whole would not be valid.
func (b *Branch) SetMetadata(name string, badName error, tags map[string]string,
	check func(whole map[string]string) error,
) error {
	defer b.operate().done()
	id, err := b.enter(name, badName)
	if err != nil {
		return err
	}
	row := b.lookup(id, store.KindMetadata)
	if row == nil {
		c := metadataChange{b.e.lastPosition() + 1, maps.Clone(tags)}
		if err := check(b.withMetadata(c)); err != nil {
			return b.Misuse(failure.Wrap(err, "set metadata %q", id))
		}
		if err := b.begins(); err != nil {
			return err
		}
		r := b.e.newRecord(id, store.KindMetadata, store.Completed, 1, 1)
		r.Output, _ = json.Marshal(c.tags) // a map of strings always encodes
		r.EndedAt = b.afterNow()
		done := r.StepRow // a copy: the flush may change the record's row
		done.FinishedAt = r.EndedAt
		b.enqueue(r) // no branch waits: every later write stays behind it, also the end of the run
		row = &done
	}
	change := metadataChange{position: row.Position}
	if err := json.Unmarshal(row.Output, &change.tags); err != nil {
		b.e.nondeterministic(id, "the record of the metadata %q is unreadable: %v", id, err)
	}
	b.knowMetadata(change)
	b.passed(row)
	return nil
}

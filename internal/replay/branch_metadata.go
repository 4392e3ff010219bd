package replay

import (
	"encoding/json"
	"maps"
	"slices"

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
		c := metadataChange{b.lastPosition() + 1, maps.Clone(tags)}
		if err := check(metadataAfter(b.e.Metadata, append(slices.Clip(b.metadata), c))); err != nil {
			return b.Misuse(failure.Wrap(err, "set metadata %q", id))
		}
		if err := b.begins(); err != nil {
			return err
		}
		r := b.newRecord(id, store.KindMetadata, store.Completed, 1, 1)
		r.Output, _ = json.Marshal(c.tags) // a map of strings always encodes
		r.EndedAt = b.afterNow(b.e.Now())
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

// Metadata returns the run's metadata as b sees them: those of the start, with the changes of b, those that the
// branches above it had made when b began, and those of branches that b has waited for. So a replay sees the same. The
// map is the caller's.
func (b *Branch) Metadata() map[string]string { return metadataAfter(b.e.Metadata, b.metadata) }

// metadataAfter returns a run's metadata, which it was started with, after the changes.
func metadataAfter(started json.RawMessage, changes []metadataChange) map[string]string {
	all := map[string]string{}
	if started != nil {
		_ = json.Unmarshal(started, &all) // the client wrote a map of strings
	}
	for _, c := range changes {
		for key, value := range c.tags {
			if value == "" {
				delete(all, key)
			} else {
				all[key] = value
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

// knowMetadata adds changes to those that the branch knows.
func (k *knowing) knowMetadata(changes ...metadataChange) {
	if len(changes) == 0 {
		return
	}
	all := append(slices.Clip(k.metadata), changes...) // a copy: branches below may have the old one
	slices.SortStableFunc(all, func(a, b metadataChange) int { return int(a.position - b.position) })
	k.metadata = slices.CompactFunc(all, func(a, b metadataChange) bool { return a.position == b.position })
}

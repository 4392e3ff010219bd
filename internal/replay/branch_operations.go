package replay

import (
	"context"
	"fmt"
	"strconv"

	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/store"
)

// enter begins a durable operation and returns the ID of its record: the branch's prefix and the name, with a number
// from the second use on. badName is why the name is invalid, or nil. enter exits the goroutine if the execution has
// stopped, and returns the cause if only the branch was cancelled. See doc_replay.go.
func (b *Branch) enter(name string, badName error) (string, error) {
	if !b.owned() {
		return "", b.foreign()
	}
	b.e.exitIfStopped()
	if badName != nil {
		return "", b.Misuse(badName)
	}
	id := b.prefix + name
	if n := b.names[name] + 1; n > 1 {
		id += "#" + strconv.Itoa(n)
	}
	if err := checkPath(id); err != nil {
		return "", b.Misuse(err)
	}
	if err := b.cancelled(); err != nil && !(b.behind() && b.hasRecorded(id)) {
		return "", err
	}
	if !b.closed || b.hasRecorded(b.prefix+name) {
		b.follow()
	}
	if b.names == nil {
		b.names = map[string]int{}
	}
	b.names[name]++
	if b.reached < b.own && b.hasRecorded(id) {
		b.reached++
	}
	if b.isCopy() && b.hasCopied(id) {
		b.reachedCopied++
		for i := range b.leftovers {
			b.leftovers[i].pending = false
		}
	}
	return id, nil
}

// longestPath is the most bytes of the ID of an operation: the names of its branches, and its own. It is part of the
// keys of tables, which may have 2,704 bytes with the run, the namespace and what Kagzi adds to some IDs.
const longestPath = 2000

// checkPath returns the error of an operation whose ID is too long.
func checkPath(id string) error {
	if len(id) <= longestPath {
		return nil
	}
	return fmt.Errorf("kagzi: the path %s, of the names of its branches and its own, has %d bytes: at most %d are "+
		"allowed; nest branches less deeply, or give them shorter names",
		text.Quote(id), len(id), longestPath)
}

// newBranch returns a new branch under b. Its goroutine must call begin.
func (b *Branch) newBranch(id string) *Branch {
	ctx, cancel := context.WithCancelCause(b.ctx)
	child := &Branch{
		identity: b.identity,
		replayer: replayer{
			e: b.e, prefix: id + "/",
			recorder: recorder{
				node: node{
					mu: b.mu, parent: &b.node, ctx: ctx, cancel: cancel, result: &branchResult{name: id},
					closing: b.closing,
				},
				journal: b.journal, outbox: b.outbox, ending: b.ending,
			},
			passage: passage{now: b.now},
		},
		knowing: knowing{metadata: b.metadata},
	}
	child.result.of = &child.node
	if row := b.recordOf(id); row != nil {
		if row.Kind != store.KindBranch {
			b.e.nondeterministic(id, "%q was recorded as %s, and the code now uses the name for a branch: give the "+
				"branch another name", id, kindWord(row.Kind))
		}
		child.attempt = row.Attempt
		if !b.forgot(row) {
			child.row = row
			child.close(row.FinishedAt)
		}
	}
	return child
}

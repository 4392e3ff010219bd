package replay

import (
	"slices"

	"github.com/kagzi/kagzi/store"
)

// premises are the newest records of an execution that the worker knows to be in the table. What it writes builds on
// them, and is refused if one is missing: see [store.Premise]. There is one, unless transactional steps of several
// branches commit at the same time: the worker does not know in which order the server did that. The next write that
// was sent after both answers takes their place. The execution's mutex guards them.
type premises struct {
	known []knownPremise
	last  int64 // the number of the last one
	sent  int64 // the number of the last one when the last flush was sent. Set by addPremisesLocked.
}

type knownPremise struct {
	store.Premise
	number int64
}

// addLocked adds the record of a write that was sent when sent was the number of the last premise. If that write has
// committed now, it is later in the server's log than those up to sent, and replaces them.
func (p *premises) addLocked(row *store.StepRow, by store.Witness, sent int64, now bool) {
	if now {
		p.known = slices.DeleteFunc(p.known, func(k knownPremise) bool { return k.number <= sent })
	}
	p.last++
	p.known = append(p.known, knownPremise{store.PremiseOf(row, by), p.last})
}

// nowLocked appends the premises to all, and returns the number of the last one, too.
func (p *premises) nowLocked(all []store.Premise) (_ []store.Premise, sent int64) {
	for _, k := range p.known {
		all = append(all, k.Premise)
	}
	return all, p.last
}

package driver

import (
	"fmt"

	"github.com/kagzi/kagzi/internal/pgproxy"

	"github.com/kagzi/kagzi/chaos/internal/evidence"
	"github.com/kagzi/kagzi/chaos/internal/fault"
	"github.com/kagzi/kagzi/chaos/internal/fleet"
)

// deafen keeps all hints from workers and customers, for the whole round, and lets the other notifications pass: no
// listener knows of the loss. It is no trouble: the bounds of polling hold. A fault that passes does not show that
// no worker polls, because the first notification after it wakes them all.
func (r *round) deafen() {
	for _, p := range append([]*fleet.Place{r.client}, r.places...) {
		r.deaf = append(r.deaf, p.Proxy.Impose(pgproxy.Trouble{Deaf: fault.IsHint}))
	}
}

// unheard says how many notifications deafen has kept back. There must be some, or the round proves nothing.
func (r *round) unheard() []evidence.Injected {
	if r.deaf == nil {
		return nil
	}
	n := 0
	for _, i := range r.deaf {
		n += i.Count()
	}
	return []evidence.Injected{{
		Fault: "F27 deaf for the whole round", Effect: n,
		Note: fmt.Sprintf("%d notifications", n),
	}}
}

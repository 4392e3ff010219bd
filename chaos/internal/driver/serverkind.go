package driver

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/kagzi/kagzi/chaos/internal/fault"
)

// AnyGround lets the seed choose the kind of server.
const AnyGround = "any"

// ground returns the ground of the options, and its name.
func (o Options) ground() (fault.Ground, error) {
	all, missing := fault.Grounds()
	if o.Ground == AnyGround { // each other round is on the plain one
		if o.Seed%2 == 0 {
			return all[0], nil
		}
		return all[int(o.Seed/2)%len(all)], nil
	}
	for _, g := range all {
		if g.Name == cmp.Or(o.Ground, all[0].Name) {
			return g, nil
		}
	}
	if why := missing[o.Ground]; why != nil {
		return fault.Ground{}, fmt.Errorf("this machine does not allow the ground %q: %w", o.Ground, why)
	}
	var names []string
	for _, g := range all {
		names = append(names, fmt.Sprintf("%q", g.Name))
	}
	return fault.Ground{}, fmt.Errorf("there is no ground %q: this machine allows %s, and %q", o.Ground, strings.Join(names, ", "), AnyGround)
}

package driver

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/kagzi/kagzi/chaos/internal/fault"
)

// AnyServer lets the seed choose the kind of server.
const AnyServer = "any"

// server returns the kind of server that the options name.
func (o Options) server() (fault.ServerKind, error) {
	all, missing := fault.ServerKinds()
	if o.Server == AnyServer { // each other round is on the plain one
		if o.Seed%2 == 0 {
			return all[0], nil
		}
		return all[int(o.Seed/2)%len(all)], nil
	}
	for _, g := range all {
		if g.Name == cmp.Or(o.Server, all[0].Name) {
			return g, nil
		}
	}
	if why := missing[o.Server]; why != nil {
		return fault.ServerKind{}, badOption("this machine does not allow the server %q: %w", o.Server, why)
	}
	var names []string
	for _, g := range all {
		names = append(names, fmt.Sprintf("%q", g.Name))
	}
	return fault.ServerKind{}, badOption("there is no kind of server %q: this machine allows %s, and %q", o.Server,
		strings.Join(names, ", "), AnyServer)
}

// An OptionError says which option no round can be played with.
type OptionError struct{ error }

func badOption(format string, args ...any) error { return OptionError{fmt.Errorf(format, args...)} }

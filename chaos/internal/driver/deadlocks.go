package driver

import (
	"fmt"
	"os"
	"strings"
)

// deadlocks returns a violation for the deadlocks in the server's log.
func (r *round) deadlocks() ([]string, error) {
	text, err := os.ReadFile(r.world.Server.LogFile())
	if err != nil {
		return nil, err
	}
	found := deadlocksIn(string(text))
	if len(found) == 0 {
		return nil, nil
	}
	return []string{fmt.Sprintf("no transaction runs into a deadlock: the server has found %d, the first of them:\n%s",
		len(found), found[0])}, nil
}

// deadlocksIn returns what a server's log says of deadlocks between statements of Kagzi. A fault that locks several
// tables at once may have to do with others.
func deadlocksIn(log string) (found []string) {
	entry := "" // a line, and those that continue it
	end := func() {
		if strings.Contains(entry, "DETAIL:  Process ") && strings.Contains(entry, "; blocked by process ") &&
			!strings.Contains(entry, "IN ACCESS EXCLUSIVE MODE") {
			found = append(found, entry)
		}
	}
	for line := range strings.Lines(log) {
		if !strings.HasPrefix(line, "\t") {
			end()
			entry = ""
		}
		entry += line
	}
	end()
	return found
}

package driver

import (
	"strings"
	"testing"
)

const logged = `2026-11-26 16:45:22.004 UTC [7] postgres ERROR:  deadlock detected at character 481
2026-11-26 16:45:22.004 UTC [7] postgres DETAIL:  Process 7 waits for ShareLock on relation 16569; blocked by process 9.
	Process 9 waits for AccessExclusiveLock on relation 16435 of database 5; blocked by process 7.
	Process 7:
	SELECT 1
	Process 9: BEGIN; LOCK TABLE kagzi.events, kagzi.pauses IN ACCESS EXCLUSIVE MODE
2026-11-26 16:45:22.004 UTC [7] postgres HINT:  See server log for query details.
2026-11-26 16:45:23.004 UTC [8] postgres ERROR:  deadlock detected
2026-11-26 16:45:23.004 UTC [8] postgres DETAIL:  Process 8 waits for ShareLock on transaction 5; blocked by process 6.
	Process 6 waits for ShareLock on transaction 4; blocked by process 8.
	Process 8: UPDATE kagzi.workflow_runs
	Process 6: UPDATE kagzi.workflow_runs
2026-11-26 16:45:23.004 UTC [8] postgres HINT:  See server log for query details.
`

// Of two deadlocks in a log, that with a fault is not found.
func TestDeadlocksIn(t *testing.T) {
	t.Parallel()
	found := deadlocksIn(logged)
	if len(found) != 1 || !strings.Contains(found[0], "Process 6: UPDATE kagzi.workflow_runs") ||
		strings.Contains(found[0], "HINT") {
		t.Errorf("found %q", found)
	}
	if found := deadlocksIn(""); len(found) > 0 {
		t.Errorf("found %q in an empty log", found)
	}
}

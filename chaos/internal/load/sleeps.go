package load

import (
	"strings"
	"time"
)

// SleepOf returns for how long the program of a job sleeps in a step, named by its ID. It returns false if the step is
// no sleep of the program.
func SleepOf(job Job, step string) (time.Duration, bool) {
	op, ok := find(Of(job).Ops, step[strings.LastIndex(step, "/")+1:])
	return time.Duration(op.N) * time.Millisecond, ok && op.Kind == opSleep
}

// find returns the operation with a name, which is in no other branch.
func find(ops []Op, name string) (Op, bool) {
	for _, op := range ops {
		if op.Name == name {
			return op, true
		}
		for _, branch := range op.Branches {
			if found, ok := find(branch, name); ok {
				return found, true
			}
		}
	}
	return Op{}, false
}

package load_test

import (
	"testing"
	"time"

	"github.com/kagzi/kagzi/chaos/internal/load"
)

// The programs of some jobs have sleeps, some of them in branches, and each is found by the name of its step.
func TestSleepsOfPrograms(t *testing.T) {
	t.Parallel()
	plain, inBranches := 0, 0
	var look func(job load.Job, ops []load.Op, path string, found *int)
	look = func(job load.Job, ops []load.Op, path string, found *int) {
		for _, op := range ops {
			d, ok := load.SleepOf(job, path+op.Name)
			if ok != (op.Kind == "sleep") || ok && d != time.Duration(op.N)*time.Millisecond {
				t.Errorf("job %d: %s sleeps for %v, %v, and is a %s of %d", job.N, path+op.Name, d, ok, op.Kind, op.N)
			}
			if ok {
				*found++
			}
			for _, branch := range op.Branches {
				look(job, branch, path+op.Name+"/0/", &inBranches)
			}
		}
	}
	for n := range 100 {
		job := load.Job{Seed: 1, N: n}
		look(job, load.Of(job).Ops, "", &plain)
	}
	if plain == 0 || inBranches == 0 {
		t.Errorf("%d sleeps, and %d in branches", plain, inBranches)
	}
}

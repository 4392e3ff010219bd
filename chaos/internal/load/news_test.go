package load_test

import (
	"reflect"
	"testing"

	"github.com/kagzi/kagzi/chaos/internal/load"
)

// Each wait for an event of a program, also in branches and in children, has a publication of its own, which depends on
// the job only, and is found by the name of its step.
func TestNewsOfPrograms(t *testing.T) {
	t.Parallel()
	var plain, inBranches, inChildren, again, before int
	var look func(job load.Job, ops []load.Op, path string, ids map[string]bool, found *int)
	look = func(job load.Job, ops []load.Op, path string, ids map[string]bool, found *int) {
		for _, op := range ops {
			id, ok := load.NewsIn(job, path+op.Name)
			if ok != (op.Kind == "event") || ok && !ids[id] {
				t.Errorf("job %d: %s waits for event %q, %v, and is a %s", job.N, path+op.Name, id, ok, op.Kind)
			}
			if ok {
				delete(ids, id)
				*found++
			}
			if op.Kind == "child" {
				look(op.Child, load.Of(op.Child).Ops, "", ids, &inChildren)
			}
			for _, branch := range op.Branches {
				look(job, branch, path+op.Name+"/0/", ids, &inBranches)
			}
		}
	}
	for n := range 200 {
		job := load.Job{Seed: 1, N: n}
		all, ids := load.NewsOf(job), map[string]bool{}
		if !reflect.DeepEqual(all, load.NewsOf(job)) {
			t.Errorf("job %d has other events the second time", n)
		}
		for _, p := range all {
			if ids[p.ID] || p.Payload != load.NewsPayload(p.ID) {
				t.Errorf("job %d: %+v", n, p)
			}
			ids[p.ID] = true
			if p.Again > 0 {
				again++
			}
			if p.After == 0 {
				before++
			}
		}
		look(job, load.Of(job).Ops, "", ids, &plain)
		if len(ids) > 0 {
			t.Errorf("job %d: events for which nothing waits: %v", n, ids)
		}
	}
	if plain == 0 || inBranches == 0 || inChildren == 0 || again == 0 || before == 0 {
		t.Errorf("%d waits, %d in branches, %d in children; %d are published twice, %d as the run starts", plain,
			inBranches, inChildren, again, before)
	}
}

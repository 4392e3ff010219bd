package model

import (
	"testing"

	"pgregory.net/rapid"
)

// TestStoreAgainstModel sends random verbs to the store and to the model, compares all rows after each, and checks the invariants after each
// sequence. The verbs go over three pools of connections. Leases that are over are drawn again, flushes, starts and messages are repeated, and the answer to
// a commit is lost now and then. Times are moved by SQL.
//
// Short sequences come first: rapid shrinks them faster. A longer search is `go test -rapid.checks 1000 -rapid.steps 80`.
//
// The test was seen to fail, within thirty sequences, when the store was changed in these ways. What rapid left of the sequences was, in short:
//   - finishRuns and completeRuns without the lease: start, claim, let the lease end, claim, end the run under the first lease;
//   - recordSteps without the lease: start, claim, release, claim, record a step under the first lease;
//   - a claim that does not write RUNNING: start, claim, claim.
//
// Without the status in the condition of due runs (claimable) it does not fail: a run that is over has no available_at, so the two conditions
// hold for the same rows.
func TestStoreAgainstModel(t *testing.T) {
	b := newBench(t)
	for _, search := range []struct{ name, checks, steps string }{{"Short", "60", "12"}, {"Long", "15", "60"}} {
		if t.Failed() {
			break
		}
		t.Run(search.name, func(t *testing.T) {
			preset("rapid.checks", search.checks)
			preset("rapid.steps", search.steps)
			rapid.Check(t, b.sequence)
		})
	}
	t.Logf("met: %v", b.met)
	for _, what := range []string{"claimed", "lost answers", "step done", "step lost", "finish done", "finish lost", "suspension done", "suspension lost", "released"} {
		if b.met[what] == 0 && !t.Failed() && !given["rapid.checks"] {
			t.Errorf("nothing was tested of %q", what)
		}
	}
}

// sequence is one random sequence of verbs.
func (b *bench) sequence(t *rapid.T) {
	w := newWorld(t, b)
	for range 1 + number(t, "runs", 4) {
		w.start(t)
	}
	w.claim(t)
	t.Repeat(map[string]func(*rapid.T){"": w.compare, "verb": w.verb})
	w.invariants(t)
}

// A verb is something that the test does. Those that others need are drawn more often.
type verb struct {
	name   string
	weight int
	do     func(*world, *rapid.T)
}

var verbs = []verb{
	{"start", 4, (*world).start},
	{"start again", 1, (*world).startAgain},
	{"claim", 12, (*world).claim},
	{"resolve a claim", 1, (*world).resolveClaim},
	{"heartbeat", 2, (*world).heartbeat},
	{"begin a suspect", 1, (*world).beginSuspect},
	{"sweep", 2, (*world).sweep},
	{"pass", 8, (*world).pass},
	{"age", 2, (*world).age},
	{"step", 6, (*world).step},
	{"announce", 1, (*world).announce},
	{"child", 3, (*world).child},
	{"child's end", 3, (*world).childEnd},
	{"read", 3, (*world).read},
	{"sleep", 2, (*world).sleep},
	{"wake", 2, (*world).wake},
	{"suspend", 4, (*world).suspend},
	{"retry", 2, (*world).retry},
	{"release", 2, (*world).release},
	{"finish", 3, (*world).finish},
	{"fail", 3, (*world).fail},
	{"flush again", 3, (*world).flushAgain},
	{"signal", 4, (*world).signal},
	{"signal again", 1, (*world).signalAgain},
	{"cancel", 1, (*world).cancel},
	{"terminate", 1, (*world).terminate},
	{"resume", 3, (*world).resume},
	{"restart", 1, (*world).restart},
	{"fork", 2, (*world).fork},
	{"pause", 1, (*world).pause},
	{"unpause", 2, (*world).unpause},
	{"delete", 1, (*world).remove},
	{"look", 1, (*world).look},
}

// nothingToDo ends a verb that has nothing to work on.
type nothingToDo struct{}

// verb draws a verb and does it.
func (w *world) verb(t *rapid.T) {
	var all []verb
	for _, v := range verbs {
		for range v.weight {
			all = append(all, v)
		}
	}
	v := pick(t, "verb", all)
	t.Logf("%s", v.name)
	defer func() {
		if r := recover(); r != nil && r != (nothingToDo{}) {
			panic(r)
		}
	}()
	v.do(w, t)
}

package model

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The searches. In most of them, half of the verbs are of a few that are preferred.
var searches = []struct {
	name, checks, steps string
	prefer              []string
}{
	{"Short", "25", "12", nil},
	{"Long", "4", "50", nil},
	{"Pairs", "5", "30", []string{"pair"}},
	{"Claims", "5", "30", []string{"claim", "claim", "claim", "claim", "sweep"}},
	{"Pauses", "5", "30", []string{
		"pause work", "unpause work", "unpause work", "unpause", "claim", "claim",
		"claim", "start",
	}},
	{"Ends", "5", "30", []string{
		"claim", "child", "register", "register", "fail", "cancel", "compensate", "deadline",
		"end overdue runs", "pair",
	}},
	{"Schedules", "5", "30", []string{
		"schedule", "hour", "hour", "hour", "fire", "fire", "fire", "replace fired", "release queued", "release queued",
		"claim", "finish", "pair",
	}},
}

// TestStoreAgainstModel sends random verbs to the store and to the model, compares all rows after each, and checks the
// invariants after each sequence. The verbs go over three pools of connections. Leases that are over are drawn again,
// flushes, starts and messages are repeated, and the answer to a commit is lost now and then. Times are moved by SQL.
// In a pair, two verbs are done at once.
//
// Short sequences come first: rapid shrinks them faster. A longer search is `go test -timeout 0 -rapid.checks 1000
// -rapid.steps 80 .`, which takes hours. A failure of a pair may not come again, as it depends on the server's
// scheduling; the first report has all that is known.
//
// The test was seen to fail when the store was changed in these ways, within thirty sequences unless a number is given:
//   - finishRuns and completeRuns without the lease; recordSteps without the lease, or without FOR SHARE; a claim that
//     does not write RUNNING;
//   - pairs: suspendRuns without FOR UPDATE; a cancel that does not read the family again under its locks (165);
//   - claims: claimLimited without the count of the queue's slots, or without spending tokens; claimKeys without
//     spending a key's tokens, with another order of a sequence, or without the place at which the next run of a key is
//     due;
//   - pauses: keyUnpaused that holds for all keys; an Unpause that leaves no changes;
//   - ends: suspendRuns without the deadline; EndOverdue that ends runs under a lease; compensations from the first to
//     the last; a compensation that waits for one end too many;
//   - schedules: ReleaseQueued that ignores other active runs.
//
// Without the status in the condition of due runs (claimable) it does not fail: a run that is over has no available_at,
// so the two conditions hold for the same rows.
func TestStoreAgainstModel(t *testing.T) {
	b := newBench(t)
	for _, search := range searches {
		if t.Failed() {
			break
		}
		t.Run(search.name, func(t *testing.T) {
			preset("rapid.checks", search.checks)
			preset("rapid.steps", search.steps)
			rapid.Check(t, func(t *rapid.T) { b.sequence(t, search.name, search.prefer) })
		})
	}
	t.Logf("met: %v", b.met)
	for _, what := range []string{
		"claimed", "lost answers", "step done", "step lost", "finish done", "finish lost", "suspension done",
		"released", "pair", "limit the queue",
		"pause work", "registration done", "end overdue runs", "fire", "release queued",
	} {
		if b.met[what] == 0 && !t.Failed() && !given["rapid.checks"] {
			t.Errorf("nothing was tested of %q", what)
		}
	}
}

// sequence is one random sequence of verbs.
func (b *bench) sequence(t *rapid.T, search string, prefer []string) {
	w := newWorld(t, b)
	w.prefer = prefer
	w.schedules = search == "Schedules" || number(t, "schedules", 4) == 0
	w.keys, w.pauses = search == "Claims" || search == "Pauses" || number(t, "keys", 2) == 0, search == "Pauses" ||
		number(t, "pauses", 4) == 0
	if search == "Claims" {
		w.do(t, w.limitingQueue(t))
	}
	if search == "Schedules" {
		w.do(t, w.scheduling(t))
	}
	for range 1 + number(t, "runs", 4) {
		w.do(t, w.starting(t))
	}
	w.do(t, w.claiming(t))
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
	{"start", 4, one((*world).starting)},
	{"start again", 1, (*world).startAgain},
	{"claim", 12, one((*world).claiming)},
	{"resolve a claim", 1, (*world).resolveClaim},
	{"heartbeat", 2, (*world).heartbeat},
	{"begin a suspect", 1, one((*world).beginningSuspect)},
	{"sweep", 2, (*world).sweep},
	{"pass", 8, (*world).pass},
	{"age", 2, (*world).age},
	{"step", 6, flushed((*world).recordingStep)},
	{"announce", 1, flushed((*world).announcing)},
	{"register", 3, flushed((*world).registering)},
	{"compensate", 3, one((*world).compensating)},
	{"deadline", 2, (*world).passDeadline},
	{"end overdue runs", 2, one((*world).endingOverdue)},
	{"child", 3, flushed((*world).recordingChild)},
	{"child's end", 3, flushed((*world).recordingChildEnd)},
	{"read", 3, flushed((*world).recordingRead)},
	{"sleep", 2, flushed((*world).recordingSleep)},
	{"wake", 2, flushed((*world).recordingWake)},
	{"suspend", 4, flushed((*world).suspending)},
	{"retry", 2, flushed((*world).retrying)},
	{"release", 2, flushed((*world).releasing)},
	{"finish", 3, (*world).finish},
	{"fail", 3, (*world).fail},
	{"flush again", 3, (*world).flushAgain},
	{"signal", 4, one((*world).signalling)},
	{"signal again", 1, (*world).signalAgain},
	{"cancel", 1, one((*world).cancelling)},
	{"terminate", 1, one((*world).terminating)},
	{"resume", 3, one((*world).resuming)},
	{"restart", 1, one((*world).restarting)},
	{"fork", 2, one((*world).forking)},
	{"pause", 1, one((*world).pausing)},
	{"unpause", 2, one((*world).unpausing)},
	{"delete", 1, one((*world).deleting)},
	{"examine", 1, (*world).examine},
	{"limit the queue", 1, one((*world).limitingQueue)},
	{"limit a key", 1, one((*world).limitingKey)},
	{"interval", 1, (*world).interval},
	{"pause work", 2, one((*world).pausingWork)},
	{"unpause work", 3, one((*world).unpausingWork)},
	{"schedule", 2, one((*world).scheduling)},
	{"unschedule", 1, one((*world).unscheduling)},
	{"pause a schedule", 1, one((*world).pausingSchedule)},
	{"hour", 3, (*world).hour},
	{"fire", 3, one((*world).firing)},
	{"replace fired", 2, one((*world).replacingFired)},
	{"release queued", 2, one((*world).releasingQueued)},
	{"pair", 6, (*world).pair},
}

// one is a verb that does one act.
func one(draw func(*world, *rapid.T) act) func(*world, *rapid.T) {
	return func(w *world, t *rapid.T) { w.do(t, draw(w, t)) }
}

// flushed is a verb that does one act, which may be done again later.
func flushed(draw func(*world, *rapid.T) act) func(*world, *rapid.T) {
	return func(w *world, t *rapid.T) { w.flush(t, draw(w, t)) }
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
	if w.prefer != nil && number(t, "preferred", 2) == 0 {
		name := pick(t, "which", w.prefer)
		all = slices.DeleteFunc(all, func(v verb) bool { return v.name != name })
	}
	v := pick(t, "verb", all)
	t.Logf("%s", v.name)
	unlessIdle(func() { v.do(w, t) })
}

// unlessIdle calls f, and reports whether that had something to work on.
func unlessIdle(f func()) (did bool) {
	defer func() {
		if r := recover(); r != nil && r != (nothingToDo{}) {
			panic(r)
		}
	}()
	f()
	return true
}

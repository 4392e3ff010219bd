package load

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
)

// QuietQueue is the queue that gets a run now and then.
const QuietQueue = "quiet"

// The queues. All but "plain", "tick" and the quiet one are limited.
var Queues = map[string]int{"plain": 4, "keyed": 1, "held": 1, "narrow": 1, "fast": 1, "tick": 1, QuietQueue: 1}

// Limits are the limits of the queues.
var Limits = []admin.QueueLimits{
	{Queue: "keyed", EachKey: admin.KeyLimits{MaxRunning: 2}},
	{Queue: "held", EachKey: admin.KeyLimits{MaxRunning: 1}, Hold: true},
	{Queue: "narrow", MaxRunning: 3},
	{Queue: "fast", Rate: admin.Rate{Starts: 50, Per: time.Second}},
}

// Gate and Door are the limits of steps.
var (
	Gate = admin.StepLimit{Name: "gate", Rate: admin.Rate{Starts: 200, Per: time.Second}, MaxRunning: 4}
	Door = admin.StepLimit{Name: "door", MaxRunning: 3}
)

// A Script is what a client does with a job.
type Script struct {
	Job      Job // it may be another customer's, too
	Options  []kagzi.StartOption
	ID       string // external ID; empty for none
	Tx       string // "commit", "roll back", or empty
	Verb     string // what a client does to the run; empty for nothing
	After    time.Duration
	Waits    bool // the client waits for the result
	WhenFull bool // the start may be refused, or cancel another run of its key, because the key is full
}

// verbs are what people do to runs, and how often, in a thousand.
var verbs = []struct {
	verb string
	n    int
}{
	{"cancel", 50},
	{"terminate", 25},
	{"pause", 40},
	{"restart", 25},
	{"fork", 25},
	{"resume", 60},
	{"update", 25},
	{"delete", 10},
	{"cancel all", 4},
	{"resume all", 4},
}

// sharedJobs is above the numbers of all other jobs.
const sharedJobs = 1_000_000

// Shared reports whether several customers may have the job.
func Shared(job Job) bool { return job.Generation == 0 && job.N >= sharedJobs }

// ScriptOf returns what a client does with a job.
func ScriptOf(job Job) (s Script) {
	r := job.random("script")
	s.Job = job
	if job.Kind != "" {
		s.ID, s.Options = fmt.Sprint(job.Kind, " ", job.N),
			[]kagzi.StartOption{kagzi.ID(fmt.Sprint(job.Kind, " ", job.N)), kagzi.Queue("plain")}
		return s
	}
	s.identify(r)
	switch n := r.IntN(20); {
	case n < 2:
		s.Tx = "commit"
	case n < 4:
		s.Tx = "roll back"
	}
	s.enqueue(r)
	if r.IntN(5) == 0 {
		s.Options = append(s.Options, kagzi.Priority(1+r.IntN(4)))
	}
	if r.IntN(10) == 0 && !s.WhenFull {
		s.Options = append(s.Options, kagzi.Delay(time.Duration(r.IntN(1000))*time.Millisecond))
	}
	n := r.IntN(1000)
	for _, v := range verbs {
		if n -= v.n; n < 0 {
			s.Verb = v.verb
			break
		}
	}
	s.After = time.Duration(r.IntN(1500)) * time.Millisecond
	s.Waits = r.IntN(2) == 0
	return s
}

// identify gives most jobs an ID. Some get one that other customers use, too.
func (s *Script) identify(r *rand.Rand) {
	switch n := r.IntN(100); {
	case n < 60:
		s.ID = fmt.Sprint("job ", s.Job.N)
	case n < 72:
		s.Job.N = sharedJobs + r.IntN(8)*100 + r.IntN(2) // others do the same job, or another one with the same ID
		s.ID = fmt.Sprint("shared ", s.Job.N/100)
		s.Options = append(s.Options, []kagzi.StartOption{
			kagzi.ReturnActive, kagzi.ReturnAnyInput, kagzi.RejectActive, kagzi.ReplaceActive,
			kagzi.RejectEnded, kagzi.StartIfFailed,
		}[r.IntN(6)])
	case n < 78:
		s.ID = fmt.Sprint("once ", s.Job.N)
		s.Options = append(s.Options, kagzi.OncePer(time.Hour))
	}
	if s.ID != "" {
		s.Options = append(s.Options, kagzi.ID(s.ID))
	}
}

// enqueue chooses the queue, with a key or a group.
func (s *Script) enqueue(r *rand.Rand) {
	switch n := r.IntN(20); {
	case n < 2:
		s.Options = append(s.Options, kagzi.Queue("keyed"), kagzi.Key(fmt.Sprint("key ", r.IntN(4))))
		if full := r.IntN(6); full < 2 && s.Tx == "" && !strings.HasPrefix(s.ID, "once") {
			s.Options, s.WhenFull = append(s.Options, []kagzi.StartOption{kagzi.RejectNew, kagzi.CancelOldest}[full]),
				true
		}
	case n < 4:
		s.Options = append(s.Options, kagzi.Queue("held"), kagzi.Key(fmt.Sprint("key ", r.IntN(6))))
	case n < 6:
		s.Options = append(s.Options, kagzi.Queue("narrow"))
	case n < 8:
		s.Options = append(s.Options, kagzi.Queue("fast"))
	case n < 9:
		s.Options = append(s.Options, kagzi.Queue("plain"), kagzi.Group(fmt.Sprint("group ", r.IntN(3))))
	default:
		s.Options = append(s.Options, kagzi.Queue("plain"))
	}
}

// Schedules are the schedules of a round: one for each overlap policy. Their ticks are from since to until, which are
// whole seconds.
func Schedules(seed uint64, since, until time.Time) (all []kagzi.Schedule) {
	for i, overlap := range []kagzi.Overlap{"", kagzi.OverlapSkip, kagzi.OverlapQueueOne, kagzi.OverlapCancelPrevious} {
		s := kagzi.Schedule{
			Name: fmt.Sprint("every second, overlap ", overlap), Overlap: overlap, CatchUp: 1000,
			Start: since, End: until,
		}
		if i%2 == 0 {
			s.Every = time.Second
		} else {
			s.Cron = "* * * * * *"
		}
		s.Run = Run.With(Job{Seed: seed + uint64(i), N: i, Kind: "tick"}, kagzi.Queue("tick"))
		all = append(all, s)
	}
	return all
}

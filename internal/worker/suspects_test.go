package worker

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/kagzi/kagzi/store"
)

// An incident is a number of crash-loop suspects, some of which kill their workers, and the workers that execute them.
type incident struct {
	workers, innocent, culprits, hung int
	// how long an innocent run takes, and a culprit until it kills its worker
	step, kills time.Duration
	deploy      time.Duration // all workers are killed once, so long after the start; zero: they are not
}

// An outcome is the end of an incident.
type outcome struct {
	begun       time.Duration // until all innocent runs have begun for the last time
	done        time.Duration // until all innocent runs have ended
	deaths      int           // of workers until then
	all         int           // deaths of workers until the culprits are quarantined
	most        int           // recoveries of an innocent run
	quarantined int           // innocent runs
}

type simulated struct {
	h              held
	culprit, hangs bool
	due, begun     time.Duration
	worker         int // -1: none
	ended          bool
}

// play simulates the incident, second by second. A worker that dies is started again.
func (in incident) play(seed uint64) (out outcome) {
	r := rand.New(rand.NewPCG(seed, 1))
	runs := make([]*simulated, in.innocent+in.culprits+in.hung)
	for i := range runs {
		run := &store.ClaimedRun{Recoveries: store.SuspectRecoveries}
		binary.BigEndian.PutUint64(run.RunID[8:], r.Uint64())
		runs[i] = &simulated{
			culprit: i < in.culprits, hangs: i >= in.culprits && i < in.culprits+in.hung,
			due: time.Second, worker: -1,
		}
		runs[i].h.ClaimedRun = run
	}
	r.Shuffle(len(runs), func(i, j int) { runs[i], runs[j] = runs[j], runs[i] })
	workers := make([]suspects, in.workers)
	for w := range workers {
		workers[w].patience = firstPatience
	}
	innocent, culprits := in.innocent, in.culprits
	start := time.Unix(0, 0)
	for now := time.Duration(0); innocent+culprits > 0 && now < 100*time.Hour; now += time.Second {
		for w := range workers {
			s := &workers[w]
			dies := in.deploy > 0 && now == in.deploy
			for _, run := range runs {
				if run.worker != w || run.ended {
					continue
				}
				switch d := now - run.begun; {
				case run.culprit:
					dies = dies || d >= in.kills
				case d >= in.step && !run.hangs:
					run.ended, run.worker = true, -1
					s.leave(&run.h)
					innocent--
					out.done = now
				}
			}
			if dies {
				if innocent > 0 {
					out.deaths++
				}
				out.all++
				for _, run := range runs {
					if run.worker == w && !run.ended {
						run.due = now + min(time.Second<<(run.h.Recoveries-2), 5*time.Minute)
						run.h.Recoveries++
						run.worker = -1
					}
				}
				*s = suspects{patience: firstPatience}
			}
			taken := s.taken(start.Add(now))
			var claimed []*simulated
			for _, run := range runs {
				if run.worker < 0 && !run.ended && run.due <= now && (taken.Below == 0 ||
					run.h.Recoveries < taken.Below || store.GroupOf(run.h.RunID, run.h.Recoveries) == taken.Joins) {
					claimed = append(claimed, run)
				}
			}
			slices.SortStableFunc(claimed, func(a, b *simulated) int { return a.h.Recoveries - b.h.Recoveries })
			for _, run := range claimed {
				switch {
				case run.h.Recoveries > maxRecoveries:
					run.ended = true
					if run.culprit {
						culprits--
					} else if !run.hangs {
						innocent--
						out.quarantined++
					}
				case s.admit(&run.h, start.Add(now)):
					run.worker, run.begun = w, now
					if !run.culprit && !run.hangs {
						out.begun = max(out.begun, now)
					}
				default:
					run.due = now + time.Second
				}
			}
		}
	}
	for _, run := range runs {
		if !run.culprit && !run.hangs {
			out.most = max(out.most, run.h.Recoveries)
		}
	}
	return out
}

// TestIncidents plays incidents, each eight times with other IDs. The outcome stated is the worst of them.
func TestIncidents(t *testing.T) {
	t.Parallel()
	const s, m = time.Second, time.Minute
	for _, tt := range []struct {
		in     incident
		begun  time.Duration // within which all innocent runs have begun for the last time
		done   time.Duration // within which they have ended
		deaths int           // of workers until then, at most
		most   int           // recoveries of an innocent run, at most
	}{
		{incident{1, 20, 0, 0, 8 * s, 0, 0}, 10 * s, 20 * s, 0, 3},
		{incident{1, 20, 0, 1, 8 * s, 0, 0}, 12 * s, 20 * s, 0, 3}, // one hangs
		{incident{1, 20, 1, 0, 8 * s, s, 0}, 90 * s, 100 * s, 5, 7},
		{incident{1, 64, 1, 1, 8 * s, s, 0}, 6 * m, 6 * m, 6, 8},
		{incident{1, 100, 1, 0, 8 * s, s, 0}, 2 * m, 3 * m, 5, 7},
		{incident{1, 100, 3, 0, 8 * s, s, 0}, 5 * m, 5 * m, 15, 8},
		{incident{4, 400, 1, 0, 8 * s, s, 0}, 2 * m, 3 * m, 6, 7},
		{incident{4, 400, 3, 3, 8 * s, s, 0}, 10 * m, 10 * m, 16, 8},
		{incident{1, 20, 1, 0, 8 * s, m, 0}, 12 * s, 20 * s, 0, 3}, // it kills slowly
		{incident{1, 20, 1, 0, 10 * m, s, 0}, 75 * m, 90 * m, 7, 9},
		{incident{1, 20, 1, 0, 10 * m, 8 * s, 0}, 75 * m, 90 * m, 7, 9},
		{incident{4, 20, 1, 0, 10 * m, s, 0}, 15 * m, 25 * m, 10, 8},
		{incident{4, 20, 1, 0, 10 * m, 8 * s, 0}, 15 * m, 25 * m, 10, 8},
		{incident{1, 20, 1, 0, 8 * s, 8 * s, 0}, 12 * s, 20 * s, 1, 4},
		{incident{1, 20, 1, 0, 10 * m, m, 0}, 90 * m, 100 * m, 7, 9},
		{incident{1, 400, 0, 0, 10 * m, 0, 0}, 12 * s, 11 * m, 0, 3}, // after deploys by kill -9
		{incident{1, 400, 0, 0, 10 * m, 0, 5 * m}, 7 * m, 17 * m, 1, 4},
	} {
		var worst outcome
		for seed := range uint64(8) {
			o := tt.in.play(seed)
			worst.begun, worst.done = max(worst.begun, o.begun), max(worst.done, o.done)
			worst.deaths, worst.all = max(worst.deaths, o.deaths), max(worst.all, o.all)
			worst.most, worst.quarantined = max(worst.most, o.most), max(worst.quarantined, o.quarantined)
		}
		t.Logf("%+v: all begun after %v, ended after %v; %d deaths until then, %d in all; at most %d recoveries", tt.in,
			worst.begun, worst.done, worst.deaths, worst.all, worst.most)
		if worst.begun > tt.begun || worst.done > tt.done || worst.deaths > tt.deaths || worst.most > tt.most ||
			worst.quarantined > 0 {
			t.Errorf("%+v: %+v; want at most %+v, and no innocent run quarantined", tt.in, worst, tt)
		}
		if bound := tt.in.culprits * (maxRecoveries + 1 - store.SuspectRecoveries); tt.in.culprits > 0 &&
			worst.all > bound {
			t.Errorf("%+v: %d workers died until the culprits were quarantined, want at most %d", tt.in,
				worst.all, bound)
		}
	}
}

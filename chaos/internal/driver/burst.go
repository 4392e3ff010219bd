package driver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi"

	"github.com/kagzi/kagzi/chaos/internal/evidence"
	"github.com/kagzi/kagzi/chaos/internal/load"
)

// burstJobs is the number of the first job of a burst; customers do not get so far.
const burstJobs = 2_000_000

// jobsOfNamespace is how many jobs the customers of a namespace can have, with and without those of bursts.
const jobsOfNamespace = 100_000

// burst starts n runs of short programs. They are due at the moment at, or at once if it is zero. It returns how many
// were started for sure.
func (c *customers) burst(ctx context.Context, n int, at time.Time) (started int, err error) {
	for range n {
		var opts []kagzi.StartOption
		if !at.IsZero() {
			opts = append(opts, kagzi.At(at))
		}
		if c.startShort(ctx, "plain", opts...) != "" {
			started++
		}
		if ctx.Err() != nil {
			return started, ctx.Err()
		}
	}
	return started, nil
}

// startShort starts a run of a short program in a queue, and returns its ID, empty if it is unknown whether there is
// one.
func (c *customers) startShort(ctx context.Context, queue string, opts ...kagzi.StartOption) kagzi.RunID {
	job := load.Job{Seed: c.seed, N: burstJobs + int(c.bursts.Add(1))}
	for ops := load.Of(job).Ops; len(ops) > 1 || ops[0].Kind != "step"; ops = load.Of(job).Ops {
		job.N = burstJobs + int(c.bursts.Add(1))
	}
	s := load.Script{ID: fmt.Sprint("burst ", job.N)}
	s.Options = append(opts, kagzi.ID(s.ID), kagzi.Queue(queue))
	return c.start(ctx, 0, job, s)
}

// murmur starts a run in the quiet queue now and then, until the customers are shut. No other client does, and no
// worker tells itself of them: if hints are lost, only polling finds them. In a busy queue, the claims for one run find
// the others, too.
func (c *customers) murmur(ctx context.Context) {
	r := rand.New(rand.NewPCG(c.seed, 1))
	for !c.shut.Load() && sleep(ctx, time.Second+time.Duration(r.IntN(2000))*time.Millisecond) {
		if run := c.startShort(ctx, load.QuietQueue); run != "" {
			c.ended(ctx, run)
		}
	}
}

// cancel cancels a run that a customer has started, and reports whether that was acknowledged. It leaves all others:
// what the run above one returns would depend on the cancel.
func (c *customers) cancel(ctx context.Context, run uuid.UUID) bool {
	call := evidence.Call{Verb: "cancel", Run: run.String()}
	if !c.started(call.Run) {
		return false
	}
	return c.insist(ctx, call, func(ctx context.Context) error {
		return c.client().Cancel(ctx, kagzi.RunID(call.Run), kagzi.Actor("chaos"))
	}).Outcome == evidence.OK
}

// bulk changes some runs by a verb for many. It mostly changes them in ways that let them go on.
func (c *customers) bulk(ctx context.Context, r *rand.Rand) int {
	return c.changeAll(ctx, 0, []string{
		"update all", "update all", "update all", "resume all", "cancel all",
		"delete all",
	}[r.IntN(6)])
}

// started reports whether a customer was told that it has started a run.
func (c *customers) started(run string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.calls, func(call evidence.Call) bool {
		return call.Verb == "start" && call.Outcome == evidence.OK && call.Run == run
	})
}

// knows reports whether a customer was told of a run by a start, a restart or a fork.
func (c *customers) knows(run string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.calls, func(call evidence.Call) bool {
		return call.Outcome == evidence.OK && (call.New == run || call.Run == run && call.Verb == "start")
	})
}

// burst is customers.burst with an equal share for each namespace.
func (r *round) burst(ctx context.Context, n int, at time.Time) (started int, err error) {
	for _, c := range r.customers {
		some, failed := c.burst(ctx, n/len(r.customers), at)
		started, err = started+some, errors.Join(err, failed)
	}
	return started, err
}

// cancel is customers.cancel of those who have started the run.
func (r *round) cancel(ctx context.Context, run uuid.UUID) bool {
	return slices.ContainsFunc(r.customers, func(c *customers) bool { return c.cancel(ctx, run) })
}

// bulk is customers.bulk in one of the namespaces.
func (r *round) bulk(ctx context.Context, random *rand.Rand) int {
	c := r.customers[0]
	if len(r.customers) > 1 {
		c = r.customers[random.IntN(len(r.customers))]
	}
	return c.bulk(ctx, random)
}

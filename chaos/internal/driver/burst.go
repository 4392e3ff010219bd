package driver

import (
	"context"
	"fmt"
	"time"

	"github.com/kagzi/kagzi"

	"github.com/kagzi/kagzi/chaos/internal/load"
)

// burstJobs is the number of the first job of a burst; customers do not get so far.
const burstJobs = 2_000_000

// burst starts n runs of short programs. They are due at the moment at, or at once if it is zero. It returns how many were started for
// sure.
func (c *customers) burst(ctx context.Context, n int, at time.Time) (started int, err error) {
	for range n {
		job := load.Job{Seed: c.seed, N: burstJobs + int(c.bursts.Add(1))}
		for ops := load.Of(job).Ops; len(ops) > 1 || ops[0].Kind != "step"; ops = load.Of(job).Ops {
			job.N = burstJobs + int(c.bursts.Add(1))
		}
		s := load.Script{ID: fmt.Sprint("burst ", job.N)}
		s.Options = []kagzi.StartOption{kagzi.ID(s.ID), kagzi.Queue("plain")}
		if !at.IsZero() {
			s.Options = append(s.Options, kagzi.At(at))
		}
		if c.start(ctx, 0, job, s) != "" {
			started++
		}
		if ctx.Err() != nil {
			return started, ctx.Err()
		}
	}
	return started, nil
}

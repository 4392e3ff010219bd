package kagzi

import "github.com/kagzi/kagzi/internal/valid"

// Limit makes a step subject to the limit of that name, which admin.Client.SetLimit has set: all steps of the namespace
// that name it share it, whatever their workflows, queues and workers. Each attempt waits until the limit lets it
// begin. A wait of more than 200 ms holds no more than a [Sleep] does, and the step keeps its place in the line. The
// step's [Timeout] does not count it.
//
// If no program has set the limit, the attempt fails with [kind.Unavailable], and is repeated according to the step's
// [RetryPolicy].
type Limit string

func (l Limit) step(c *stepConfig) {
	c.limit = string(l)
	c.Check(valid.LimitName(string(l)))
}

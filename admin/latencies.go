package admin

import (
	"context"
	"encoding/json"
	"time"

	"github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/store/inspect"
)

// A Latency says how long the newest completed runs of one workflow in one queue took: see [Client.Latencies].
type Latency struct {
	Queue    string    `json:"queue"`
	Workflow string    `json:"workflow"`
	Runs     int       `json:"runs"` // from which the other fields are computed
	Wait     Quantiles `json:"wait"` // from the start to the first execution, with the Delay of the start if it had one
	Took     Quantiles `json:"took"` // from the start to the end, with all sleeps and waits
}

// Quantiles are some values of a distribution of durations. Their JSON has them as text, such as "1.5s".
type Quantiles struct {
	Median time.Duration
	P95    time.Duration // of a hundred runs, five took longer
	Max    time.Duration
}

type quantilesJSON struct {
	Median string `json:"median"`
	P95    string `json:"p95"`
	Max    string `json:"max"`
}

// MarshalJSON writes the durations as text.
func (q Quantiles) MarshalJSON() ([]byte, error) {
	return json.Marshal(quantilesJSON{duration.Format(q.Median), duration.Format(q.P95), duration.Format(q.Max)})
}

// UnmarshalJSON is the inverse of MarshalJSON.
func (q *Quantiles) UnmarshalJSON(data []byte) error {
	var in quantilesJSON
	if err := json.Unmarshal(data, &in); err != nil {
		return failure.Wrap(err, "quantiles as JSON")
	}
	var out Quantiles
	for d, text := range map[*time.Duration]string{&out.Median: in.Median, &out.P95: in.P95, &out.Max: in.Max} {
		var err error
		if *d, err = duration.Parse(text); err != nil {
			return failure.Wrap(err, "quantiles as JSON")
		}
	}
	*q = out
	return nil
}

// latencyWithin is the time over which latencies are computed.
const latencyWithin = time.Hour

// Latencies returns how long runs took that completed within the last hour, by queue and workflow. A workflow of which
// no such run is found is missing.
//
// It reads a bounded number of rows. Of each workflow in each queue it looks at the runs that were started last: 5,000
// in all, at least 10 of each, of a thousand pairs at most. A run that so many later ones have followed is not counted.
//
// A request that the database refuses or does not answer within 5 seconds fails. Latencies is safe for concurrent use.
func (c *Client) Latencies(ctx context.Context) ([]Latency, error) {
	ctx, cancel := context.WithTimeout(ctx, statsTimeout)
	defer cancel()
	err := c.core.CheckSchema(ctx, nil)
	var read []inspect.RouteLatency
	if err == nil {
		read, err = c.core.Inspect.Latencies(ctx, latencyWithin)
	}
	if err != nil {
		return nil, failure.Wrap(c.core.Public(ctx, err), "latencies")
	}
	out := make([]Latency, len(read))
	for i, l := range read {
		out[i] = Latency{
			Queue: l.Queue, Workflow: l.Type, Runs: l.Runs, Wait: Quantiles(l.Wait),
			Took: Quantiles(l.Took),
		}
	}
	return out, nil
}

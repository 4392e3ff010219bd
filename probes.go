package kagzi

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/internal/text"
)

// probeFresh is how long the answer to a probe is given to others: many probes cost the database as much as one.
const probeFresh = time.Second

// Readiness returns a handler that says whether the client can work: 200 if it can, 503 if the database is away or
// read-only, rights are missing, or the schema does not fit. It does not ask whether work goes on, as [Client.Health]
// does: taking a process that starts runs out of service because no worker lives would lose the starts as well.
//
// The body is a [HealthReport] as JSON, for people. An answer is shared by concurrent requests and is a second old at
// most; it comes within 5 seconds, so give the probe a longer timeout. Methods other than GET and HEAD get 405.
func (c *Client) Readiness() http.Handler {
	return &probe{look: func(ctx context.Context) HealthReport {
		if err := c.made(); err != nil {
			return unusable(err)
		}
		return c.examine(ctx, func(e *examination, ctx context.Context) { e.essentials(ctx) }).report
	}}
}

// Liveness returns a handler that says whether the process should go on: 200, or 503 if a worker in it is stuck, which
// is one that for three times its StaleAfter, and a minute at the least, has neither had an answer from the database
// nor been refused one. It asks the database nothing, and does not fail because that is away: starting
// every process again would not bring it back. Body and methods are as for [Client.Readiness].
func (c *Client) Liveness() http.Handler {
	return &probe{look: func(context.Context) HealthReport {
		if err := c.made(); err != nil {
			return unusable(err)
		}
		return c.alive()
	}}
}

// unusable is the report of a client that there is not.
func unusable(err error) HealthReport {
	e := examination{report: HealthReport{Status: Healthy}}
	e.note("client", Unhealthy, "%s.", text.Sentence(err.Error()))
	return e.report
}

// alive looks at the workers of this process. If one of their locks is never released it does not return, and the probe
// fails for that.
func (c *Client) alive() HealthReport {
	e := examination{c: c, report: HealthReport{Status: Healthy, Namespace: c.cfg.Namespace}}
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.sessions {
		if silence, stuck := s.stuck(); stuck {
			e.note("worker", Unhealthy, "Worker %s of queue %q has had neither answer nor error from the database for %s: start the process again, and report its goroutines.",
				s.workerID(), s.cfg.Queue, duration.About(silence))
		}
	}
	if len(e.report.Checks) == 0 {
		workers := "workers"
		if len(c.sessions) == 1 {
			workers = "worker"
		}
		e.note("process", Healthy, "Alive, with %d %s.", len(c.sessions), workers)
	}
	return e.report
}

// stuck reports for how long nothing has come from the database, neither answer nor error, and whether that is longer
// than can be explained: heartbeats go out all the time, and each of them ends soon.
func (s *session) stuck() (silence time.Duration, stuck bool) {
	s.clock.mu.Lock()
	last := s.clock.heard
	s.clock.mu.Unlock()
	if troubled := *s.troubled.Load(); troubled.After(last) {
		last = troubled
	}
	silence = time.Since(last)
	return silence, silence > max(time.Minute, 3*s.cfg.StaleAfter, 3*s.cfg.Heartbeat)
}

// A probe is a handler that answers with a report.
type probe struct {
	look func(context.Context) HealthReport

	mu   sync.Mutex
	last *look // the newest one, perhaps under way
}

// A look is one report, under way until done is closed.
type look struct {
	done   chan struct{}
	report HealthReport
	ended  time.Time
}

// ServeHTTP answers with the report of a look that is under way, or fresh.
func (p *probe) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "GET or HEAD only", http.StatusMethodNotAllowed)
		return
	}
	report, ok := p.get(r.Context())
	if !ok {
		return // the client has gone
	}
	body, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if report.Status == Unhealthy {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	if r.Method == http.MethodGet {
		_, _ = w.Write(append(body, '\n')) // the client may have gone
	}
}

// get returns a report that is fresh, the one that is under way, or a new one; false if ctx ended before.
func (p *probe) get(ctx context.Context) (HealthReport, bool) {
	p.mu.Lock()
	l := p.last
	mine := l == nil || !l.ended.IsZero() && time.Since(l.ended) >= probeFresh
	if mine {
		l = &look{done: make(chan struct{})}
		p.last = l
	}
	p.mu.Unlock()
	if !mine {
		select {
		case <-l.done:
			return l.report, true
		case <-ctx.Done():
			return HealthReport{}, false
		}
	}
	defer func() {
		p.mu.Lock()
		l.ended = time.Now()
		p.mu.Unlock()
		close(l.done)
	}()
	// Others wait for it, so it does not end with who asked first.
	l.report = HealthReport{Status: Unhealthy, Checks: []HealthCheck{{"process", Unhealthy, "The look ended in a panic."}}}
	l.report = p.look(context.WithoutCancel(ctx))
	return l.report, true
}

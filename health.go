package kagzi

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/migrations"
	"github.com/kagzi/kagzi/store"
)

// A HealthStatus says how well something is.
type HealthStatus string

// The statuses, from best to worst.
const (
	Healthy   HealthStatus = "healthy"
	Degraded  HealthStatus = "degraded"  // part of the work does not go on, or somebody should look
	Unhealthy HealthStatus = "unhealthy" // the client cannot work, or no work goes on
)

// worse reports whether s is worse than other.
func (s HealthStatus) worse(other HealthStatus) bool { return s.rank() > other.rank() }

func (s HealthStatus) rank() int {
	switch s {
	case Healthy:
		return 0
	case Degraded:
		return 1
	default:
		return 2
	}
}

// A HealthReport is what [Client.Health] found in the client's namespace. As JSON it contains no address, user or
// password of the database.
type HealthReport struct {
	// Status is the worst of the Checks' statuses.
	Status    HealthStatus `json:"status"`
	Namespace string       `json:"namespace"`
	// At is the database's time; zero if it did not answer.
	At      time.Time     `json:"at,omitzero"`
	Checks  []HealthCheck `json:"checks"`
	Workers HealthWorkers `json:"workers,omitzero"`
	// Queues has what is due, by queue and workflow.
	Queues []HealthQueue `json:"queues,omitempty"`
	// SetAside has the newest few runs that failed with KindCrashLoop, KindNondeterminism, KindBadInput or
	// KindUnreadable.
	SetAside []RunID `json:"set_aside,omitempty"`
}

// Check returns the check of that name, or one that is Healthy and empty if there is none: what needs the database
// is left out when that is away.
func (r HealthReport) Check(name string) HealthCheck {
	for _, c := range r.Checks {
		if c.Name == name {
			return c
		}
	}
	return HealthCheck{Name: name, Status: Healthy}
}

// A HealthCheck is one thing that was looked at: "database", "pool", "schema", "writable", "workers", "queues",
// "schedules" or "set-aside". Only while there is something wrong there are "histories", about runs that wait because what
// they recorded cannot be read, and "work", about what the database refuses to workers of this process. The
// checks of [Client.Liveness] are "process", or "worker" for each worker that is stuck.
type HealthCheck struct {
	Name   string       `json:"name"`
	Status HealthStatus `json:"status"`
	Detail string       `json:"detail"` // what was found, and what to do about it
}

// HealthWorkers sums up the workers that are registered and not OFFLINE.
type HealthWorkers struct {
	Live     int `json:"live"`     // heartbeats come, and runs are claimed
	Draining int `json:"draining"` // heartbeats come, and nothing is claimed any more
	Silent   int `json:"silent"`   // no heartbeat for longer than the worker's StaleAfter
	Active   int `json:"active"`   // workflow functions under way, as the last heartbeats of the live ones said
	Most     int `json:"most"`     // the sum of the live ones' MaxConcurrent
	// OldestHeartbeat is the oldest last heartbeat among those that are live or draining.
	OldestHeartbeat time.Time `json:"oldest_heartbeat,omitzero"`
}

// A HealthQueue is what of one workflow is due in one queue.
type HealthQueue struct {
	Queue    string    `json:"queue"`
	Workflow string    `json:"workflow"`
	Due      int       `json:"due"`                // runs that could be executed now; see More
	More     bool      `json:"more,omitempty"`     // there are more than were counted
	Since    time.Time `json:"since"`              // when the first of them became due
	Versions []int     `json:"versions,omitempty"` // that the counted runs ask for; a run without any takes each
	Workers  int       `json:"workers"`            // live workers of the queue that have a handler for the workflow
	Stranded []int     `json:"stranded,omitempty"` // of Versions, those that none of these workers has a handler for
}

const (
	// healthTimeout bounds Health, and healthAcquire in it the wait for a connection of the pool.
	healthTimeout = 5 * time.Second
	healthAcquire = 2 * time.Second
)

// Health looks whether the client can work and whether the work of its namespace goes on. It takes about ten short
// statements on one connection, whose cost does not grow with the number of runs.
//
// Unhealthy is a client that cannot work (the database is away or read-only, rights are missing, the schema does
// not fit) and a namespace in which work has been due for 15 seconds and no worker lives. Degraded is
// what somebody should look at: all connections of the pool in use; silent workers; work that no live worker has a
// handler for, for 15 seconds; work that was due five minutes ago although there are workers for it; schedules that are
// a minute late, or paused for an error; runs that were quarantined within the last 24 hours; a worker of this process
// that the database answers, and refuses what it asks.
//
// A database that is away is a report, not an error. Health returns after 5 seconds at the latest, or when ctx's
// deadline has passed, with what it knows by then; the error is that of a ctx that was cancelled. If the pool has no
// free connection for two seconds, it opens one. Health is safe for concurrent use; for probes see [Client.Readiness].
func (c *Client) Health(ctx context.Context) (HealthReport, error) {
	if err := c.made(); err != nil {
		return HealthReport{}, failed(err, "health")
	}
	e := c.examine(ctx, (*examination).everything)
	if err := ctx.Err(); errors.Is(err, context.Canceled) {
		return e.report, failed(err, "health")
	}
	return e.report, nil
}

// An examination is one Health under way.
type examination struct {
	c      *Client
	db     store.DB
	report HealthReport
}

// examine connects, and calls look.
func (c *Client) examine(ctx context.Context, look func(*examination, context.Context)) *examination {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	e := &examination{c: c, report: HealthReport{Status: Healthy, Namespace: c.cfg.Namespace}}
	db, release, err := e.connection(ctx)
	if err != nil {
		e.away(err)
		return e
	}
	defer release()
	e.db = db
	look(e, ctx)
	return e
}

// note adds a check to the report.
func (e *examination) note(name string, status HealthStatus, format string, args ...any) {
	e.report.Checks = append(e.report.Checks, HealthCheck{name, status, fmt.Sprintf(format, args...)})
	if status.worse(e.report.Status) {
		e.report.Status = status
	}
}

// failed notes that a look did not succeed.
func (e *examination) failed(name string, err error) {
	e.note(name, Degraded, "Could not be looked at: %s.", store.Reason(err))
}

func (e *examination) away(err error) {
	e.note("database", Unhealthy, "The database does not serve this client: %s. Workers carry on by themselves when it does again.", store.Reason(err))
}

// connection gives a connection of the pool or, if the application has them all in use, one beside it: whether the
// database is well does not depend on that.
func (e *examination) connection(ctx context.Context) (db store.DB, release func(), err error) {
	pool := e.c.store.Pool()
	wait := healthAcquire
	if t, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(t)*2/5)
	}
	acquire, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	conn, err := pool.Acquire(acquire)
	if err == nil {
		s := pool.Stat()
		e.note("pool", Healthy, "%d of %d connections are in use, this look's included.", s.AcquiredConns(), s.MaxConns())
		return conn, conn.Release, nil
	}
	if ctx.Err() != nil || acquire.Err() == nil || pool.Stat().AcquiredConns() < pool.Stat().MaxConns() {
		return nil, nil, err
	}
	own, err := store.Connect(ctx, pool)
	if err != nil {
		return nil, nil, err
	}
	e.note("pool", Degraded, "All %d connections of the pool have been in use for %v: set pool_max_conns higher, or find out who holds them (pg_stat_activity).",
		pool.Stat().MaxConns(), healthAcquire)
	return own, func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = own.Close(ctx)
	}, nil
}

// essentials looks whether the client can work, and reports whether the tables can be asked.
func (e *examination) essentials(ctx context.Context) (usable bool) {
	begun := time.Now()
	now, err := store.DatabaseTime(ctx, e.db)
	if err != nil {
		e.away(err)
		return false
	}
	e.report.At = now
	e.note("database", Healthy, "Answers in %s.", duration.Format(time.Since(begun).Round(100*time.Microsecond)))
	if !e.schema(ctx) {
		return false
	}
	switch err := e.c.store.CheckRightsOn(ctx, e.db); {
	case err == nil:
		e.note("writable", Healthy, "Takes writes, and this user may make them.")
		return true
	case store.Away(err):
		e.away(err)
		return false
	default:
		e.note("writable", Unhealthy, "%s.", text.Sentence(anonymous(err).Error()))
		return true
	}
}

// schema looks whether this program works with the schema. If somebody has made that impossible while it ran it is not
// taken out of service: what still works goes on until it is replaced.
func (e *examination) schema(ctx context.Context) (fits bool) {
	switch version, err := migrations.Check(ctx, e.db); {
	case err == nil:
		e.c.ready.Store(true)
		e.note("schema", Healthy, "%s.", migrations.Describe(version))
	case errors.Is(err, migrations.ErrNewer) && e.c.ready.Load():
		e.note("schema", Degraded, "%s: it goes on, but its statements may fail, and it could not start again.", text.Sentence(err.Error()))
	case errors.Is(err, migrations.ErrMissing), errors.Is(err, migrations.ErrOlder), errors.Is(err, migrations.ErrNewer):
		e.note("schema", Unhealthy, "%s.", text.Sentence(err.Error()))
		return false
	case store.Away(err):
		e.away(err)
		return false
	default:
		e.note("schema", Unhealthy, "%s.", text.Sentence(anonymous(store.ExplainRightsOn(ctx, e.db, err)).Error()))
		return false
	}
	return true
}

// anonymous is err without the name of a user whose rights are missing: a probe's answer shows it to anybody.
func anonymous(err error) error {
	if lacks, ok := errors.AsType[*store.MissingRights](err); ok {
		return fmt.Errorf("this user lacks %s: doctor.Examine has the GRANT statements", lacks.What())
	}
	return err
}

package checkup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/migrations"
	"github.com/kagzi/kagzi/store"
)

// A Worker is a running worker of this process.
type Worker struct {
	ID      string
	Queues  []string
	Silence time.Duration // since the worker last got an answer or an error from the database
	Stuck   bool          // Silence is too long for an outage, in which the worker gets errors
}

const (
	// timeout is that of a checkup, acquireTimeout that of its wait for a connection of the pool.
	timeout        = 5 * time.Second
	acquireTimeout = 2 * time.Second
)

// Health reports whether the client can work and whether the work of its namespace is done.
func (p Process) Health(ctx context.Context) health.Report {
	return p.examine(ctx, func(ctx context.Context, e *examination) {
		if !e.essentials(ctx) {
			return
		}
		e.work(ctx)
		e.limits(ctx)
		e.schedules(ctx)
		e.topics(ctx)
		e.paused(ctx)
		e.failedRuns(ctx)
		e.compensations(ctx)
		e.quarantined(ctx)
		e.suspects(ctx)
		e.histories(ctx)
		e.messages(ctx)
		e.inboxes(ctx)
		e.doubts(ctx)
		e.failures()
	})
}

// Readiness reports whether the client can work.
func (p Process) Readiness(ctx context.Context) health.Report {
	return p.examine(ctx, func(ctx context.Context, e *examination) { e.essentials(ctx) })
}

// quoted returns the first names, quoted.
func quoted(names []string) string {
	var q []string
	for _, n := range names {
		q = append(q, text.Quote(n))
	}
	return text.List(q, namedAtMost)
}

// Liveness reports whether one of the workers is stuck, which are all of this process.
func Liveness(namespace string, workers []Worker) health.Report {
	e := examination{report: health.Report{Status: health.Healthy, Namespace: namespace}}
	for _, w := range workers {
		if w.Stuck {
			e.add("worker", health.Unhealthy, "Worker %s of queue %s has had neither answer nor error from the "+
				"database for %s: start the process again, and report its goroutines.",
				w.ID, quoted(w.Queues), duration.About(w.Silence))
		}
	}
	if len(e.report.Checks) == 0 {
		noun := "workers"
		if len(workers) == 1 {
			noun = "worker"
		}
		e.add("process", health.Healthy, "Alive, with %d %s.", len(workers), noun)
	}
	return e.report
}

// Unusable returns the report of a client that cannot be used at all.
func Unusable(err error) health.Report {
	e := examination{report: health.Report{Status: health.Healthy}}
	e.add("client", health.Unhealthy, "%s.", text.Sentence(err.Error()))
	return e.report
}

// examine connects, calls check, and returns the report.
func (p Process) examine(ctx context.Context, check func(context.Context, *examination)) health.Report {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	e := &examination{process: p, report: health.Report{Status: health.Healthy, Namespace: p.Namespace}}
	db, release, err := e.connection(ctx)
	if err != nil {
		e.addAway(err)
		return e.report
	}
	defer release()
	e.db = db
	check(ctx, e)
	return e.report
}

// connection returns a connection of the pool. If all of these are in use, it opens another one, because a full pool
// does not mean that the database is unhealthy.
func (e *examination) connection(ctx context.Context) (db pg.DB, release func(), err error) {
	pool := e.process.Store.Pool()
	wait := acquireTimeout
	if t, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(t)*2/5)
	}
	acquire, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	conn, err := pool.Acquire(acquire)
	if err == nil {
		s := pool.Stat()
		e.add("pool", health.Healthy, "%d of %d connections are in use, one of them by this check.", s.AcquiredConns(),
			s.MaxConns())
		return conn, conn.Release, nil
	}
	if ctx.Err() != nil || acquire.Err() == nil || pool.Stat().AcquiredConns() < pool.Stat().MaxConns() {
		return nil, nil, err
	}
	own, err := store.Connect(ctx, pool)
	if err != nil {
		return nil, nil, err
	}
	e.add("pool", health.Degraded, "All %d connections of the pool have been in use for %v: set pool_max_conns "+
		"higher, or find out who holds them (pg_stat_activity).",
		pool.Stat().MaxConns(), acquireTimeout)
	return own, func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = own.Close(ctx)
	}, nil
}

// essentials checks whether the client can work, and reports whether the tables can be read.
func (e *examination) essentials(ctx context.Context) (usable bool) {
	begun := time.Now()
	now, err := store.DatabaseTime(ctx, e.db)
	if err != nil {
		e.addAway(err)
		return false
	}
	e.report.At = now
	e.add("database", health.Healthy, "Answers in %s.", duration.Format(time.Since(begun).Round(100*time.Microsecond)))
	if !e.schema(ctx) {
		return false
	}
	switch may, err := e.process.Store.CheckRightsOn(ctx, e.db, e.process.Needs); {
	case err == nil && may == store.ViewerRights:
		e.add("writable", health.Healthy, "Takes writes. This user may only read.")
		return true
	case err == nil:
		e.add("writable", health.Healthy, "Takes writes, and this user may make them.")
		return true
	case pg.Unavailable(err):
		e.addAway(err)
		return false
	default:
		e.add("writable", health.Unhealthy, "%s.", text.Sentence(anonymous(err).Error()))
		return true
	}
}

// schema checks whether this program works with the schema. If a migration has ended that while the program runs, the
// client stays in service until the program is replaced, because most of it may still work.
func (e *examination) schema(ctx context.Context) (fits bool) {
	switch version, err := migrations.Check(ctx, e.db); {
	case err == nil:
		e.process.Ready.Store(true)
		e.add("schema", health.Healthy, "%s.", migrations.Describe(version))
	case errors.Is(err, migrations.ErrNewer) && e.process.Ready.Load():
		e.add("schema", health.Degraded, "%s: it goes on, but its statements may fail, and it could not start again.",
			text.Sentence(err.Error()))
	case errors.Is(err, migrations.ErrMissing), errors.Is(err, migrations.ErrOlder),
		errors.Is(err, migrations.ErrNewer), errors.Is(err, migrations.ErrEncoding):
		e.add("schema", health.Unhealthy, "%s.", text.Sentence(err.Error()))
		return false
	case pg.Unavailable(err):
		e.addAway(err)
		return false
	default:
		e.add("schema", health.Unhealthy, "%s.",
			text.Sentence(anonymous(store.ExplainRightsOn(ctx, e.db, err)).Error()))
		return false
	}
	return true
}

// anonymous returns err without the name of the user who lacks a right: a probe's answer is public.
func anonymous(err error) error {
	if lacks, ok := errors.AsType[*store.MissingRights](err); ok {
		return fmt.Errorf("this user lacks %s: the doctor has the GRANT statements", lacks.What())
	}
	return err
}

package checkup

import (
	"fmt"
	"sync/atomic"

	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/store/inspect"
)

// A Process is the part of a client that a checkup uses.
type Process struct {
	Store     *store.Store
	Inspect   *inspect.View
	Namespace string

	// Ready is true once this program was found to work with the schema. The client and each checkup that finds it set
	// it.
	Ready *atomic.Bool

	// Needs are the rights in the database that the process needs: those of a client or of a worker.
	Needs store.Rights

	// Failures returns the requests of this process's workers that the database refuses. Any goroutine may call it.
	Failures func() []outage.Failure

	// MaxLoadFailures is after how many failures to read its history a run is quarantined.
	MaxLoadFailures int
}

// An examination is the state of one checkup.
type examination struct {
	process Process
	db      pg.DB
	report  health.Report
	live    fleet // set by work
}

// add adds a check to the report.
func (e *examination) add(name string, status health.Status, format string, args ...any) {
	e.report.Checks = append(e.report.Checks,
		health.Check{Name: name, Status: status, Detail: fmt.Sprintf(format, args...)})
	if status.Worse(e.report.Status) {
		e.report.Status = status
	}
}

// addFailed adds that a check could not be made.
func (e *examination) addFailed(name string, err error) {
	e.add(name, health.Degraded, "Could not be checked: %s.", store.Reason(err))
}

// addAway adds that the database is away.
func (e *examination) addAway(err error) {
	advice := store.Advice(err)
	if advice != "" {
		advice = " " + text.Sentence(advice) + "."
	}
	if pg.Unavailable(err) {
		advice += " Workers go on by themselves when it does again."
	}
	e.add("database", health.Unhealthy, "The database does not serve this client: %s.%s", store.Reason(err), advice)
}

package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/internal/valid"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/store/inspect"
)

// AuditKind says what an [AuditEntry] is about.
type AuditKind string

// Kinds of objects in the audit log.
const (
	AuditRun      AuditKind = store.OnRun
	AuditSchedule AuditKind = store.OnSchedule
	AuditQueue    AuditKind = store.OnQueue
	AuditKey      AuditKind = store.OnKey
	AuditGroup    AuditKind = store.OnGroup
	AuditWorkflow AuditKind = store.OnWorkflow // its pauses
	AuditAll      AuditKind = store.OnAll      // pauses of all runs of the namespace
	AuditLimit    AuditKind = store.OnLimit    // of [Limits.Set]
	AuditWorker   AuditKind = store.OnWorker
	AuditConsumer AuditKind = store.OnConsumer
)

var auditKinds = []AuditKind{
	AuditRun, AuditSchedule, AuditQueue, AuditKey, AuditGroup, AuditWorkflow, AuditAll,
	AuditLimit, AuditWorker, AuditConsumer,
}

// An AuditEntry is an entry of the audit log: a change that a caller made through a client. See [Client.Audit]. Its
// JSON follows the rules of [kagzi.RunInfo].
type AuditEntry struct {
	ID string    `json:"id"` // a UUID
	At time.Time `json:"at,omitzero"`
	// Action names the change. To a run: an Event of [Runs.Log] but ATTEMPT_FAILED. To a schedule: CREATED, UPDATED,
	// PAUSED, RESUMED, TRIGGERED, BACKFILLED or DELETED. To limits: CREATED, UPDATED or DELETED. To a [Target]: PAUSED
	// or UNPAUSED. To a worker: DRAINED or FORCED_OFFLINE; to a queue, DRAINED. To a consumer: TRIGGERED, SKIPPED or
	// DELETED.
	Action string    `json:"action"`
	Kind   AuditKind `json:"kind"`
	// of the object; of a run or a worker, its ID; of all runs, empty
	Name string `json:"name,omitempty"`
	// of a key, of a workflow that is paused in one queue, and of a worker that drains with its queue
	Queue      string      `json:"queue,omitempty"`
	Workflow   string      `json:"workflow,omitempty"`    // of a run
	ExternalID kagzi.ID    `json:"external_id,omitempty"` // the [kagzi.ID] of a run, if it had one
	Other      kagzi.RunID `json:"other,omitempty"`       // as in [LogEntry]; for TRIGGERED, the run that was started
	Step       string      `json:"step,omitempty"`        // as in LogEntry
	Actor      string      `json:"actor,omitempty"`       // the [kagzi.Actor] that the caller gave
	Reason     string      `json:"reason,omitempty"`      // the [kagzi.Reason] that the caller gave
	// Changes are the values before and after. Of an input they say only the sizes.
	Changes []LogChange `json:"changes,omitempty"`
}

// An AuditFilter selects entries of the audit log; the zero value selects all. An entry must match all fields that are
// set.
type AuditFilter struct {
	Kind   AuditKind
	Name   string // of the object; of a run, its run ID or its [kagzi.ID]
	Queue  string // AuditEntry.Queue: the queue of a key
	Action string
	Actor  string
	Since  time.Time // inclusive
	Until  time.Time // exclusive
	After  string    // the ID of the last entry of the page before
	Limit  int       // zero: 100
}

// choice validates f.
func (f AuditFilter) choice() (inspect.AuditFilter, error) {
	limit, err := valid.Listed(f.Limit)
	out := inspect.AuditFilter{
		Kind: string(f.Kind), Name: f.Name, Queue: f.Queue, Action: strings.ToUpper(f.Action), Actor: f.Actor,
		Since: f.Since, Until: f.Until, Limit: limit,
	}
	errs := []error{err}
	if f.Kind != "" && !slices.Contains(auditKinds, f.Kind) {
		errs = append(errs, fmt.Errorf("kagzi: the audit log has no kind %s: give one of the constants, such as "+
			"admin.AuditSchedule", text.Quote(string(f.Kind))))
	}
	for field, value := range map[string]string{"name": f.Name, "queue": f.Queue, "action": f.Action} {
		if value != "" {
			errs = append(errs, valid.Name(field, value))
		}
	}
	if f.Actor != text.Sanitize(f.Actor, core.MostWhy) {
		errs = append(errs, errors.New("kagzi: no entry has this Actor: it has control characters, or more than 1 KiB"))
	}
	for field, t := range map[string]time.Time{"Since": f.Since, "Until": f.Until} {
		if !t.IsZero() {
			errs = append(errs, valid.Time(field, t))
		}
	}
	if f.After != "" {
		id, err := uuid.Parse(f.After)
		if err != nil {
			err = failure.Explain(fmt.Sprintf("%.60q is not the ID of an entry", f.After), kagzi.ErrNotFound)
		}
		out.After = id
		errs = append(errs, err)
	}
	return out, errors.Join(errs...)
}

// Audit returns the entries of the audit log that f selects, the newest first. For the next page, set f.After to the ID
// of the last one.
//
// The log has every change that a caller made through a client: of runs, schedules, limits, pauses, workers and
// consumers, with its [kagzi.Actor] and [kagzi.Reason]. It also has the messages whose senders gave one of them. It has
// neither starts nor what Kagzi does by itself. An entry is written in the transaction of its change. A call that
// changes nothing has none.
//
// Entries are kept for [kagzi.CoordinatorConfig].KeepAudit, 90 days by default, also after their object. Audit returns
// [kagzi.ErrNotFound] if the entry of f.After no longer exists. See docs/audit.md.
func (c *Client) Audit(ctx context.Context, f AuditFilter) ([]AuditEntry, error) {
	err := c.core.Made()
	var chosen inspect.AuditFilter
	if err == nil {
		chosen, err = f.choice()
	}
	if err == nil {
		err = c.core.CheckSchema(ctx, nil)
	}
	var rows []store.AuditEntry
	if err == nil {
		rows, err = c.core.Inspect.Audit(ctx, chosen)
	}
	if errors.Is(err, inspect.ErrNoEntry) {
		err = failure.Explain("the entry of After does not exist any more: begin again without After",
			kagzi.ErrNotFound)
	}
	if err != nil {
		return nil, failure.Wrap(c.core.Public(ctx, err), "read the audit log")
	}
	entries := make([]AuditEntry, len(rows))
	for i, e := range rows {
		entries[i] = AuditEntry{
			ID: e.ID.String(), At: e.At, Action: e.Action, Kind: AuditKind(e.Kind), Name: e.Name, Queue: e.Queue,
			Workflow: e.Type, ExternalID: kagzi.ID(e.External),
			Step: e.Step, Actor: e.Actor, Reason: e.Reason,
		}
		if e.Other != uuid.Nil {
			entries[i].Other = kagzi.RunID(e.Other.String())
		}
		for _, change := range e.Changes {
			entries[i].Changes = append(entries[i].Changes, LogChange(change))
		}
	}
	return entries, nil
}

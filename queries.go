package kagzi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/replay"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/internal/valid"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/store/inspect"
	"github.com/kagzi/kagzi/waits"
)

// Get returns the row of a run; for an [ID], that of the active run, else of the newest. Its WaitingOn also says which
// limit or pause holds up a run that is due. Get returns [ErrNotFound] if the client's namespace has no such run.
func (c *Client) Get(ctx context.Context, ref Ref) (RunInfo, error) {
	at := core.RefOf(ref)
	r, err := c.runOf(ctx, at)
	var wait core.Wait
	if err == nil {
		wait, err = c.core.Wait(ctx, r)
	}
	if err != nil {
		return RunInfo{}, c.Core().FailedIf(ctx, err, "get %v", at)
	}
	info := c.runInfo(r)
	info.WaitingOn, info.InboxFullSince, info.Hung = wait.On, wait.InboxFullSince, hungCodes(wait.Hung)
	return info, nil
}

// Wait waits for the run to end, and returns what [Client.Get] does: its Status says how it has ended. For an [ID],
// that is the active run, else the newest. A program that knows the type of the result has [Run.Result].
//
// An error means that the wait ended early, as that of Result.
func (c *Client) Wait(ctx context.Context, ref Ref) (RunInfo, error) {
	info, err := c.Get(ctx, ref)
	for err == nil && !info.Status.Ended() { // an operator may resume the run between its end and Get
		id, _ := uuid.Parse(string(info.ID)) // of a row
		release := core.AwaitsRun(ctx, id)
		_, err = c.core.Hints.Result(ctx, id)
		release()
		if err != nil && !errors.Is(err, store.ErrRunNotFound) {
			return RunInfo{}, failure.Wrap(err, "wait for %s %s", info.Workflow, info.ID)
		}
		info, err = c.Get(ctx, info.ID)
	}
	return info, err
}

// runOf returns the row of a run.
func (c *Client) runOf(ctx context.Context, at core.Ref) (*store.Run, error) {
	id, err := c.Core().Resolve(ctx, nil, at)
	if err != nil {
		return nil, err
	}
	return c.core.Store.Runs.Get(ctx, id)
}

func (c *Client) runInfo(r *store.Run) RunInfo {
	info := RunInfo{
		ID: RunID(r.RunID.String()), ExternalID: ID(r.ExternalID), Workflow: r.Type, Queue: r.Queue, Version: r.Version,
		Priority: r.Priority, Attempts: r.Attempts, Recoveries: r.Recoveries, Status: Status(r.Status),
		WaitingOn: core.WaitingOn(r),
		Kind:      kind.Kind(r.ErrorKind), Quarantined: r.Quarantined, Compensated: r.Compensated(), Error: r.Error,
		CreatedAt: r.CreatedAt, StartedAt: r.StartedAt, AvailableAt: r.AvailableAt, Epoch: r.Epoch,
		Schedule: r.Schedule, FireTime: r.FireAt, DeadlineAt: r.DeadlineAt, StartBy: r.StartBy, PausedAt: r.PausedAt,
		CancelRequestedAt: r.CancelledAt, EndedAt: r.FinishedAt, Input: c.core.Payloads.Shown(r.Input),
		Output: c.core.Payloads.Shown(r.Output),
	}
	if r.LockedBy != uuid.Nil && info.Status == StatusRunning {
		info.Worker = r.LockedBy.String()
	}
	info.SilentSince, info.InboxFullSince = r.SilentSince, r.InboxFullAt
	if r.Parent != uuid.Nil {
		info.Parent, info.ParentStep = RunID(r.Parent.String()), r.ParentStep
	}
	if r.Origin != uuid.Nil {
		info.Origin = RunID(r.Origin.String())
	}
	key, group := core.KeyOrGroup(r.Key)
	info.Key, info.Group = Key(key), Group(group)
	_ = json.Unmarshal(r.Metadata, &info.Metadata) // written by startOptions, from a map of strings
	info.Headers, info.Progress = storedHeaders(r.Headers), storedProgress(r.Progress)
	return info
}

// A RunFilter selects runs; the zero value selects all. A run must match all fields that are set. Since and Until rely
// on the clocks of those who start runs: a run that was started by a clock more than a day ahead or behind may be
// missing.
type RunFilter struct {
	Status   []Status
	Workflow string
	Queue    string
	ID       ID
	Parent   RunID
	Schedule string    // runs that this schedule started
	Key      Key       // runs with this key; with Queue, those of one queue's key
	Group    Group     // runs of this group
	Metadata Metadata  // runs that have all of these tags
	Kind     kind.Kind // runs whose last failure is of this kind
	// runs whose RunInfo.WaitingOn, as List shows it, has this wait: its kind and name, as in "signal approved", or its
	// kind, as in "signal"
	WaitingOn  string
	Since      time.Time // runs started at or after it
	Until      time.Time // runs started before it
	EndedSince time.Time // runs that ended at or after it
	EndedUntil time.Time // runs that ended before it
	Paused     bool      // active runs that are paused themselves, by admin.Runs.Pause
	// runs whose last error has this text in it, whatever the case of its letters (in a database of locale C: of a to
	// z): the errors of all runs that the other fields select are read
	ErrorText string
	// MinRecoveries selects runs whose RunInfo.Recoveries are as many or more, active ones and others: 3 those that
	// count as possible culprits. All runs with as many recoveries are read.
	MinRecoveries int
	IDs           []RunID // runs with these run IDs, 10,000 at most
	After         RunID   // the last run of the page before
	Limit         int     // zero means 100 for List, and no limit for the bulk verbs and Worker.Replay
	Payloads      bool    // List reads Input and Output; other methods ignore it
}

// List returns the runs that f selects, newest first. For the next page, set f.After to the ID of the last one. Their
// Input and Output are empty unless f.Payloads is set: [Client.Get] returns those of one run. List reads an index for
// all but Metadata, Key and Group, where the database chooses; with a Kind or WaitingOn it is fastest if the Status
// says which runs these are. After the database's clock has been ahead, active runs that were started or claimed then
// are missing until it has caught up; so they are in the bulk verbs.
func (c *Client) List(ctx context.Context, f RunFilter) ([]RunInfo, error) {
	var rows []*store.Run
	err := c.Core().CheckSchema(ctx, nil)
	var chosen inspect.Filter
	if err == nil {
		chosen, err = f.Core(c.core)
	}
	if err == nil {
		rows, err = c.core.Inspect.List(ctx, nil, chosen)
	}
	if err != nil {
		return nil, failure.Wrap(c.Core().Public(ctx, err), "list")
	}
	out := make([]RunInfo, len(rows))
	for i, r := range rows {
		out[i] = c.runInfo(r)
	}
	return out, nil
}

// maxFilterIDs is how many IDs a RunFilter has at most.
const maxFilterIDs = 10_000

// Core is for Kagzi's own packages. It validates f; its error is of kind.BadRequest.
func (f RunFilter) Core(c *core.Client) (inspect.Filter, error) {
	sf, err := f.chosen(c)
	if err != nil {
		err = failure.Of(kind.BadRequest, err)
	}
	return sf, err
}

func (f RunFilter) chosen(c *core.Client) (inspect.Filter, error) {
	limit, err := valid.Listed(f.Limit)
	sf := inspect.Filter{
		Type: f.Workflow, Queue: f.Queue, ExternalID: string(f.ID), WaitingOn: waits.Parse(f.WaitingOn),
		Created: inspect.Span{From: f.Since, Until: f.Until}, Paused: f.Paused,
		Ended: inspect.Span{From: f.EndedSince, Until: f.EndedUntil}, MinRecoveries: f.MinRecoveries,
		Error: inspect.Failure{Kind: string(f.Kind), Text: f.ErrorText},
		Page:  inspect.Page{Limit: limit, Payloads: f.Payloads},
	}
	if err := cmp.Or(errors.Join(err, valid.Time("Since", f.Since), valid.Time("Until", f.Until),
		valid.Time("EndedSince", f.EndedSince), valid.Time("EndedUntil", f.EndedUntil)), f.validate()); err != nil {
		return sf, err
	}
	if sf.IDs, err = f.ids(); err != nil {
		return sf, err
	}
	if sf.Parent, err = parsedID("Parent", f.Parent, "give the parent's RunInfo.ID"); err != nil {
		return sf, err
	}
	if sf.After, err = parsedID("After", f.After, "give the RunInfo.ID of the last run of the page "+
		"before"); err != nil {
		return sf, err
	}
	for _, s := range f.Status {
		sf.Status = append(sf.Status, string(s))
	}
	if len(f.Metadata) > 0 {
		sf.Metadata, _ = json.Marshal(f.Metadata)
	}
	if f.Schedule != "" {
		sf.Schedule = c.ScheduleID(f.Schedule)
	}
	sf.Key = store.Key{Name: cmp.Or(string(f.Key), string(f.Group)), Group: f.Group != ""}
	return sf, nil
}

// validate checks all but times and run IDs.
func (f *RunFilter) validate() error {
	switch {
	case !utf8.ValidString(f.ErrorText) || strings.ContainsRune(f.ErrorText, 0):
		return fmt.Errorf("kagzi: ErrorText is %s: no error has bytes like these, so give other text",
			text.Quote(f.ErrorText))
	case f.MinRecoveries < 0:
		return fmt.Errorf("kagzi: MinRecoveries is %d: give a positive number, or leave it out to select runs "+
			"whatever their recoveries", f.MinRecoveries)
	case f.Key != "" && f.Group != "":
		return errKeyAndGroup
	}
	for _, s := range f.Status {
		if !slices.Contains(statuses, s) {
			return fmt.Errorf("kagzi: there is no status %s: use kagzi.StatusFailed or another of the constants",
				text.Quote(string(s)))
		}
	}
	names := [][2]string{
		{"workflow name", f.Workflow},
		{"queue", f.Queue},
		{"ID", string(f.ID)},
		{"schedule name", f.Schedule},
		{"key", string(f.Key)},
		{"group", string(f.Group)},
		{"kind", string(f.Kind)},
	}
	for word := range strings.SplitSeq(f.WaitingOn, " ") {
		names = append(names, [2]string{"WaitingOn", word})
	}
	for _, name := range names {
		if err := valid.Name(name[0], name[1]); err != nil && name[1] != "" {
			return err
		}
	}
	return valid.Metadata(f.Metadata)
}

// parsedID returns the run ID in a field; the zero one if there is none.
func parsedID(field string, id RunID, advice string) (uuid.UUID, error) {
	parsed, err := uuid.Parse(string(id))
	if id == "" || err == nil {
		return parsed, nil
	}
	return parsed, fmt.Errorf("kagzi: %s %.60q is not a run ID: %s", field, id, advice)
}

// ids returns the run IDs that the filter selects; nil: any.
func (f *RunFilter) ids() (ids []uuid.UUID, err error) {
	if f.IDs != nil && (len(f.IDs) == 0 || len(f.IDs) > maxFilterIDs) {
		return nil, fmt.Errorf("kagzi: IDs has %d run IDs: give 1 to %d, or leave it out to select runs whatever "+
			"their IDs", len(f.IDs), maxFilterIDs)
	}
	for _, id := range f.IDs {
		parsed, err := uuid.Parse(string(id))
		if err != nil {
			return nil, fmt.Errorf("kagzi: IDs has %s, which is no run ID: use those that Start and List return",
				text.Quote(string(id)))
		}
		ids = append(ids, parsed)
	}
	return ids, nil
}

// A StepFilter selects what [Client.Steps] returns; the zero value selects all.
type StepFilter struct {
	Steps      []string // the attempts of these steps, named as in [StepAttempt].Step; empty means all
	NoPayloads bool     // without Input, Output and Headers; the database does not read the payloads either
	Before     bool     // of a run that has continued, its steps before it last did: see [Continue]
}

// validate refuses steps that cannot be stored.
func (f StepFilter) validate() error {
	for _, step := range f.Steps {
		if !utf8.ValidString(step) || strings.IndexFunc(step, unicode.IsControl) >= 0 {
			return failure.Of(kind.BadRequest, fmt.Errorf("kagzi: StepFilter.Steps has %s: the name has characters "+
				"that no step's has", text.Quote(step)))
		}
	}
	return nil
}

func (f StepFilter) payloads() store.StepPayloads {
	if f.NoPayloads {
		return store.StepPayloads{Before: f.Before}
	}
	return store.StepPayloads{All: len(f.Steps) == 0, Steps: f.Steps, Before: f.Before}
}

// Steps returns the step attempts of a run, in the order in which they began, or were first recorded. It has the
// attempts that ended, sleeps and waits with a [Timeout] from their beginning, and a [Step] under way once its function
// has run for a second. A wait without a Timeout is recorded when it ends: until then only [RunInfo].WaitingOn names
// it. Each registration of a compensation is an attempt. Steps returns [ErrNotFound] if the client's namespace has no
// such run.
//
// Steps reads the whole history of the run, but a filter spares the payloads that are not asked for, which are most of
// it. It takes one filter at most.
func (c *Client) Steps(ctx context.Context, ref Ref, filter ...StepFilter) ([]StepAttempt, error) {
	at := core.RefOf(ref)
	if len(filter) > 1 {
		return nil, failure.Of(kind.BadRequest, errors.New("kagzi: Client.Steps takes one StepFilter: set all of its "+
			"fields in that one"))
	}
	var f StepFilter
	if len(filter) == 1 {
		f = filter[0]
	}
	var run *store.Run
	var rows []*store.StepRow
	var hung []store.HungCode
	err := f.validate()
	if err == nil {
		run, err = c.runOf(ctx, at)
	}
	if err == nil {
		rows, err = c.core.Store.Histories.Attempts(ctx, run, f.payloads())
	}
	if err == nil {
		hung, err = c.core.Inspect.HungCode(ctx, run)
	}
	if err != nil {
		return nil, failure.Wrap(c.Core().Public(ctx, err), "steps of %v", at)
	}
	rows = replay.Present(run, rows, f.Before)
	wanted := map[string]bool{}
	for _, name := range f.Steps {
		wanted[name] = true
	}
	out := make([]StepAttempt, 0, len(rows))
	for _, r := range rows {
		if len(f.Steps) == 0 || wanted[r.StepID] {
			out = append(out, c.stepAttempt(r, hung, !f.NoPayloads))
		}
	}
	return out, nil
}

// stepAttempt returns what a row of the history shows.
func (c *Client) stepAttempt(r *store.StepRow, hung []store.HungCode, payloads bool) StepAttempt {
	a := StepAttempt{
		Step: r.StepID, Type: r.Kind, Attempt: r.Attempt, Status: Status(r.Status), Kind: kind.Kind(r.ErrorKind),
		Error: r.Error, StartedAt: r.StartedAt, EndedAt: r.FinishedAt, WakeAt: r.WakeAt,
	}
	for _, h := range hung {
		// else it has returned since
		if h.Awaits == uuid.Nil && h.Step == r.StepID && h.Attempt == r.Attempt && r.Status != store.Completed &&
			r.Status != store.Failed {
			a.HungSince = h.Since.UTC()
		}
	}
	if r.ChildRunID != uuid.Nil {
		a.Child = RunID(r.ChildRunID.String())
	}
	if r.WrittenBy != uuid.Nil {
		a.Worker = r.WrittenBy.String()
	}
	if !payloads {
		return a
	}
	a.Input = c.core.Payloads.Shown(r.Input)
	switch r.Kind {
	case store.KindMarker, store.KindPeek, store.KindReserve: // Kagzi's own
		a.Output = r.Output
	case store.KindCompensation, store.KindBranch: // hashes, and the IDs of failures
	case store.KindSignal, store.KindRequest:
		a.Input, a.Headers, a.Output = nil, storedHeaders(r.Input), c.core.Payloads.Shown(r.Output)
	case store.KindAsk, store.KindEvent: // the headers are Kagzi's own
		a.Input, a.Output = nil, c.core.Payloads.Shown(r.Output)
	default:
		a.Output = c.core.Payloads.Shown(r.Output)
	}
	return a
}

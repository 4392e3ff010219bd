package kagzi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
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
)

// Get returns the row of a run; for an [ID], that of the active run, else of the newest. Its WaitingOn also says which
// limit or pause holds up a run that is due. Get returns [ErrNotFound] if the client's namespace has no such run.
func (c *Client) Get(ctx context.Context, ref Ref) (RunInfo, error) {
	at := core.RefOf(ref)
	var r *store.Run
	id, err := c.Core().Resolve(ctx, nil, at)
	if err == nil {
		r, err = c.core.Store.Runs.Get(ctx, id)
	}
	if err != nil {
		return RunInfo{}, c.Core().FailedIf(ctx, err, "get %v", at)
	}
	info := c.runInfo(r)
	if (info.Status == StatusPending || info.Status == StatusSleeping) && !r.AvailableAt.IsZero() {
		var o inspect.Obstacle
		o, err = c.core.Inspect.Obstacle(ctx, id)
		info.WaitingOn = cmp.Or(obstacleText(r, o), info.WaitingOn)
	}
	aside, fullSince, failed := c.core.Inspect.InboxOf(ctx, r, waitsForSignal(info.WaitingOn))
	info.WaitingOn, info.InboxFullSince, err = info.WaitingOn+asideText(aside), fullSince, cmp.Or(err, failed)
	if !info.SilentSince.IsZero() {
		info.WaitingOn = "takeover"
	} else if err == nil && (info.Status == StatusRunning || info.Status.Ended()) {
		err = c.addUnderWay(ctx, &info, r)
	}
	if err != nil {
		info = RunInfo{}
	}
	return info, c.core.FailedIf(ctx, err, "get %v", at)
}

// waitsForSignal reports whether one of the things that a run waits for is a message, or may be: of many waits, the
// text counts some.
func waitsForSignal(waitingOn string) bool {
	last := waitingOn[strings.LastIndexByte(waitingOn, ';')+1:]
	_, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(last), " more"))
	return strings.HasPrefix(waitingOn, "signal ") || strings.Contains(waitingOn, "; signal ") || err == nil
}

// asideText is what a WaitingOn says of n messages that were set aside.
func asideText(n int) string {
	switch n {
	case 0:
		return ""
	case 1:
		return "; 1 message that does not decode"
	}
	return fmt.Sprintf("; %d messages that do not decode", n)
}

// mostNamed is how many steps a text names.
const mostNamed = 3

// addUnderWay adds to info what a worker does for r, which is RUNNING or over: the code that hangs, and the steps that
// a cancel waits for.
func (c *Client) addUnderWay(ctx context.Context, info *RunInfo, r *store.Run) error {
	hung, err := c.core.Inspect.HungCode(ctx, r)
	if err != nil {
		return err
	}
	info.Hung = hungCodes(hung)
	if info.WaitingOn != waitsForCancel {
		return nil
	}
	steps, err := c.core.Inspect.StepsUnderWay(ctx, r, mostNamed+1)
	switch {
	case len(steps) == 1:
		info.WaitingOn += " (step " + steps[0] + " under way)"
	case len(steps) > 1:
		info.WaitingOn += " (steps " + text.List(steps, mostNamed) + " under way)"
	}
	return err
}

// waitsForCancel is the WaitingOn of a cancelled run whose worker has to end it.
const waitsForCancel = "cancel"

// obstacleText returns the WaitingOn of a due run, empty if nothing keeps workers from claiming it.
func obstacleText(r *store.Run, o inspect.Obstacle) string {
	key := "key " + r.Key.Name
	if r.Key.Group {
		key = "group " + r.Key.Name
	}
	switch {
	case o.Own:
		return "pause"
	case o.Paused && o.Pause.Key.Name != "":
		return "pause of " + key
	case o.Paused && o.Pause.Type != "":
		return "pause of workflow " + o.Pause.Type
	case o.Paused && o.Pause.Queue != "":
		return "pause of queue " + o.Pause.Queue
	case o.Paused:
		return "pause of all runs"
	case o.Key.Most > 0:
		return fmt.Sprintf("%s (%d of %d running), behind %s", key, o.Key.Running, o.Key.Most, o.Key.Holder)
	case o.Key.Rate:
		return "rate of " + key
	case o.Queue.Most > 0:
		return fmt.Sprintf("queue %s (%d of %d running)", r.Queue, o.Queue.Running, o.Queue.Most)
	case o.Queue.Rate:
		return "rate of queue " + r.Queue
	}
	return ""
}

func (c *Client) runInfo(r *store.Run) RunInfo {
	info := RunInfo{
		ID: RunID(r.RunID.String()), ExternalID: ID(r.ExternalID), Workflow: r.Type, Queue: r.Queue, Version: r.Version,
		Priority: r.Priority, Attempts: r.Attempts, Recoveries: r.Recoveries, Status: Status(r.Status),
		WaitingOn: r.WaitingOn,
		Kind:      kind.Kind(r.ErrorKind), Quarantined: r.Quarantined, Error: r.Error, CreatedAt: r.CreatedAt,
		StartedAt: r.StartedAt, AvailableAt: r.AvailableAt,
		Schedule: r.Schedule, FireTime: r.FireAt, DeadlineAt: r.DeadlineAt, PausedAt: r.PausedAt,
		CancelRequestedAt: r.CancelledAt, EndedAt: r.FinishedAt, Input: c.core.Payloads.Shown(r.Input),
		Output: c.core.Payloads.Shown(r.Output),
	}
	if r.LockedBy != uuid.Nil && info.Status == StatusRunning {
		info.Worker = r.LockedBy.String()
	}
	info.SilentSince, info.InboxFullSince = r.SilentSince, r.InboxFullAt
	if info.Status == StatusRunning && !r.CancelledAt.IsZero() {
		info.WaitingOn = waitsForCancel
	}
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
	// runs whose RunInfo.WaitingOn, as List shows it, has this wait: all of it, as in "signal approved", or its first
	// word, as in "signal"
	WaitingOn  string
	Since      time.Time // runs started at or after it
	Until      time.Time // runs started before it
	EndedSince time.Time // runs that ended at or after it
	EndedUntil time.Time // runs that ended before it
	Paused     bool      // active runs that are paused themselves, by admin.Client.PauseRun
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
		Type: f.Workflow, Queue: f.Queue, ExternalID: string(f.ID), Kind: string(f.Kind), WaitingOn: f.WaitingOn,
		Since: f.Since, Until: f.Until, EndedSince: f.EndedSince, EndedUntil: f.EndedUntil, Paused: f.Paused,
		ErrorText: f.ErrorText, Limit: limit, Payloads: f.Payloads, MinRecoveries: f.MinRecoveries,
	}
	if err := errors.Join(err, valid.Time("Since", f.Since), valid.Time("Until", f.Until),
		valid.Time("EndedSince", f.EndedSince), valid.Time("EndedUntil", f.EndedUntil)); err != nil {
		return sf, err
	}
	if !utf8.ValidString(f.ErrorText) || strings.ContainsRune(f.ErrorText, 0) {
		return sf, fmt.Errorf("kagzi: ErrorText is %s: no error has bytes like these, so give other text",
			text.Quote(f.ErrorText))
	}
	if f.MinRecoveries < 0 {
		return sf, fmt.Errorf("kagzi: MinRecoveries is %d: give a positive number, or leave it out to select runs "+
			"whatever their recoveries", f.MinRecoveries)
	}
	if sf.IDs, err = f.ids(); err != nil {
		return sf, err
	}
	for word := range strings.SplitSeq(f.WaitingOn, " ") {
		if word != "" {
			if err := valid.Name("WaitingOn", word); err != nil {
				return sf, err
			}
		}
	}
	for _, s := range f.Status {
		if !slices.Contains(statuses, s) {
			return sf, fmt.Errorf("kagzi: there is no status %s: use kagzi.StatusFailed or another of the constants",
				text.Quote(string(s)))
		}
		sf.Status = append(sf.Status, string(s))
	}
	if f.Parent != "" {
		if sf.Parent, err = uuid.Parse(string(f.Parent)); err != nil {
			return sf, fmt.Errorf("kagzi: Parent %.60q is not a run ID: give the parent's RunInfo.ID", f.Parent)
		}
	}
	if f.After != "" {
		if sf.After, err = uuid.Parse(string(f.After)); err != nil {
			return sf, fmt.Errorf("kagzi: After %.60q is not a run ID: give the RunInfo.ID of the last run of the "+
				"page before", f.After)
		}
	}
	if len(f.Metadata) > 0 {
		if err := valid.Metadata(f.Metadata); err != nil {
			return sf, err
		}
		sf.Metadata, _ = json.Marshal(f.Metadata)
	}
	if f.Schedule != "" {
		sf.Schedule = c.ScheduleID(f.Schedule)
	}
	if f.Key != "" && f.Group != "" {
		return sf, errKeyAndGroup
	}
	sf.Key = store.Key{Name: cmp.Or(string(f.Key), string(f.Group)), Group: f.Group != ""}
	for field, text := range map[string]string{
		"workflow name": f.Workflow, "queue": f.Queue, "ID": string(f.ID), "schedule name": f.Schedule,
		"key": string(f.Key), "group": string(f.Group), "kind": string(f.Kind),
	} {
		if text == "" {
			continue
		}
		if err := valid.Name(field, text); err != nil {
			return sf, err
		}
	}
	return sf, nil
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
		return store.StepPayloads{}
	}
	return store.StepPayloads{All: len(f.Steps) == 0, Steps: f.Steps}
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
	var id uuid.UUID
	err := f.validate()
	if err == nil {
		id, err = c.Core().Resolve(ctx, nil, at)
	}
	if err == nil {
		run, err = c.core.Store.Runs.Get(ctx, id)
	}
	if err != nil {
		return nil, failure.Wrap(c.Core().Public(ctx, err), "steps of %v", at)
	}
	rows, err := c.core.Store.Histories.Attempts(ctx, id, f.payloads())
	var hung []store.HungCode
	if err == nil {
		hung, err = c.core.Inspect.HungCode(ctx, run)
	}
	if err != nil {
		return nil, failure.Wrap(c.Core().Public(ctx, err), "steps of %v", at)
	}
	replay.Present(run, rows)
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
	case store.KindSignal:
		a.Input, a.Headers, a.Output = nil, storedHeaders(r.Input), c.core.Payloads.Shown(r.Output)
	default:
		a.Output = c.core.Payloads.Shown(r.Output)
	}
	return a
}

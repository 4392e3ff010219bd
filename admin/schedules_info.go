package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/housekeeping"
	"github.com/kagzi/kagzi/internal/payloads"
	"github.com/kagzi/kagzi/internal/timetable"
	"github.com/kagzi/kagzi/internal/valid"
	"github.com/kagzi/kagzi/store"
)

// ScheduleInfo is one row of the table of schedules. Its JSON follows the rules of [kagzi.RunInfo], with durations as
// text, such as "30s".
type ScheduleInfo struct {
	Name       string          `json:"name"`
	Workflow   string          `json:"workflow"`
	Queue      string          `json:"queue"`
	Input      json.RawMessage `json:"input,omitempty"`    // as the client's Codec wrote it
	Metadata   kagzi.Metadata  `json:"metadata,omitempty"` // of its runs, as are Headers, Key and Group
	Headers    kagzi.Headers   `json:"headers,omitempty"`
	Key        kagzi.Key       `json:"key,omitempty"`
	Group      kagzi.Group     `json:"group,omitempty"`
	Cron       string          `json:"cron,omitempty"`
	Every      time.Duration   `json:"every,omitempty"`
	TimeZone   string          `json:"time_zone,omitempty"`
	Overlap    kagzi.Overlap   `json:"overlap,omitempty"`
	CatchUp    int             `json:"catch_up,omitempty"`
	CatchUpAge time.Duration   `json:"catch_up_age,omitempty"`
	SkipPaused bool            `json:"skip_paused,omitempty"`
	Jitter     time.Duration   `json:"jitter,omitempty"`
	Start      time.Time       `json:"start,omitzero"`
	End        time.Time       `json:"end,omitzero"`
	Paused     bool            `json:"paused"`
	// PausedAt is since when it is paused. PauseActor and PauseReason are the [kagzi.Actor] and the [kagzi.Reason] of
	// [Schedules.Pause], if it had them.
	PausedAt    time.Time `json:"paused_at,omitzero"`
	PauseActor  string    `json:"pause_actor,omitempty"`
	PauseReason string    `json:"pause_reason,omitempty"`
	// why Kagzi paused it; if it is not paused, why an interceptor refused its last tick, which is tried again
	Error string `json:"error,omitempty"`
	// the newest tick that was fired or dropped; for a new schedule, when it was created
	Last time.Time `json:"last,omitzero"`
	// when a coordinator handles its next tick; in the past if it is overdue, zero if never
	Next      time.Time `json:"next,omitzero"`
	Active    bool      `json:"active"` // whether a run of it is under way
	Queued    bool      `json:"queued"` // whether a run of it waits for the active one
	CreatedAt time.Time `json:"created_at,omitzero"`
}

func (s Schedules) info(t *store.Template) ScheduleInfo {
	var spec timetable.Spec
	_ = json.Unmarshal(t.Timing, &spec) // written by template; Error says if it cannot be read
	info := ScheduleInfo{
		Name: t.Name, Workflow: t.Type, Queue: t.Queue, Input: s.core.Payloads.Shown(t.Input), Cron: t.Cron,
		Every:    spec.Every,
		TimeZone: t.TimeZone,
		Overlap:  kagzi.Overlap(t.Overlap), CatchUp: t.CatchUp, CatchUpAge: spec.CatchUpAge,
		SkipPaused: spec.SkipPaused,
		Jitter:     spec.Jitter,
		Start:      spec.Start.UTC(), End: spec.End.UTC(), Paused: t.Paused, PausedAt: t.PausedAt,
		PauseActor: t.PauseWhy.Actor, PauseReason: t.PauseWhy.Reason, Error: t.Problem, Last: t.Cursor, Next: t.Next,
		Active: t.Active, Queued: t.Queued, CreatedAt: t.CreatedAt,
	}
	key, group := core.KeyOrGroup(t.Key)
	info.Key, info.Group = kagzi.Key(key), kagzi.Group(group)
	_ = json.Unmarshal(t.Metadata, &info.Metadata) // written by startOptions, from a map of strings
	info.Headers = core.Tags(t.Headers)
	return info
}

// Get returns the row of a schedule, or [kagzi.ErrNotFound].
func (s Schedules) Get(ctx context.Context, name string) (ScheduleInfo, error) {
	t, err := s.get(ctx, name)
	if err != nil {
		return ScheduleInfo{}, failure.Wrap(s.core.Public(ctx, err), "get schedule %.60q", name)
	}
	return s.info(t), nil
}

func (s Schedules) get(ctx context.Context, name string) (*store.Template, error) {
	err := valid.Name("schedule name", name)
	if err == nil {
		err = s.core.CheckSchema(ctx, nil)
	}
	if err != nil {
		return nil, err
	}
	return s.core.Store.Schedules.Get(ctx, s.core.ScheduleID(name))
}

// A ScheduleFilter selects schedules; the zero value selects all.
type ScheduleFilter struct {
	Workflow string // the workflow that they start
	After    string // the name of the last schedule of the page before
	Limit    int    // zero: 100
}

// List returns the schedules that f selects, in the byte order of their names. For the next page, set f.After
// to the name of the last one.
func (s Schedules) List(ctx context.Context, f ScheduleFilter) ([]ScheduleInfo, error) {
	limit, err := valid.Listed(f.Limit)
	if err != nil {
		return nil, failure.Wrap(err, "list schedules")
	}
	for field, text := range map[string]string{"workflow name": f.Workflow, "schedule name": f.After} {
		if text == "" {
			continue
		}
		if err := valid.Name(field, text); err != nil {
			return nil, failure.Wrap(err, "list schedules")
		}
	}
	if err := s.core.CheckSchema(ctx, nil); err != nil {
		return nil, failure.Wrap(err, "list schedules")
	}
	rows, err := s.core.Store.Schedules.List(ctx, f.Workflow, f.After, limit)
	if err != nil {
		return nil, failure.Wrap(s.core.Public(ctx, err), "list schedules")
	}
	out := make([]ScheduleInfo, len(rows))
	for i, t := range rows {
		out[i] = s.info(t)
	}
	return out, nil
}

// NextFires returns the next n times at which the schedule would start a run, or fewer if its End comes first. Overdue
// ticks come first, as far as CatchUp, CatchUpAge and Overlap allow. For a paused schedule the times are those after a
// resume now.
func (s Schedules) NextFires(ctx context.Context, name string, n int) ([]time.Time, error) {
	if n < 0 || n > timetable.MaxTicks {
		return nil, fmt.Errorf("kagzi: next fires of schedule %.60q: give a number up to %d, not %d", name,
			timetable.MaxTicks, n)
	}
	t, err := s.get(ctx, name)
	var out []time.Time
	if err == nil {
		out, err = housekeeping.Schedule(t).NextFires(t.Now, n)
	}
	if err != nil {
		return nil, failure.Wrap(s.core.Public(ctx, err), "next fires of schedule %.60q", name)
	}
	return out, nil
}

type scheduleFields ScheduleInfo

type scheduleJSON struct {
	scheduleFields
	Input      json.RawMessage `json:"input,omitempty"`
	InputBytes []byte          `json:"input_base64,omitempty"`
	Every      string          `json:"every,omitempty"`
	CatchUpAge string          `json:"catch_up_age,omitempty"`
	Jitter     string          `json:"jitter,omitempty"`
}

// MarshalJSON writes the JSON that ScheduleInfo and RunInfo document.
func (s ScheduleInfo) MarshalJSON() ([]byte, error) {
	out := scheduleJSON{scheduleFields: scheduleFields(s)}
	out.Input, out.InputBytes = payloads.InJSON(s.Input)
	out.Every, out.CatchUpAge, out.Jitter = duration.Text(s.Every), duration.Text(s.CatchUpAge), duration.Text(s.Jitter)
	return json.Marshal(out)
}

// UnmarshalJSON is the inverse of MarshalJSON.
func (s *ScheduleInfo) UnmarshalJSON(data []byte) error {
	var in scheduleJSON
	if err := json.Unmarshal(data, &in); err != nil {
		return failure.Wrap(err, "schedule as JSON")
	}
	out := ScheduleInfo(in.scheduleFields)
	out.Input = payloads.FromJSON(in.Input, in.InputBytes)
	for d, text := range map[*time.Duration]string{
		&out.Every: in.Every, &out.CatchUpAge: in.CatchUpAge,
		&out.Jitter: in.Jitter,
	} {
		var err error
		if *d, err = duration.OfText(text); err != nil {
			return failure.Wrap(err, "schedule as JSON")
		}
	}
	*s = out
	return nil
}

package kagzi

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/kagzi/kagzi/store"
)

// ScheduleInfo is what is known of a schedule.
type ScheduleInfo struct {
	Name            string
	Workflow, Queue string
	Input           json.RawMessage // as the client's Codec wrote it
	Metadata        Metadata        // of its runs
	Cron            string
	Every           time.Duration
	TimeZone        string
	Overlap         Overlap
	CatchUp         int
	CatchUpAge      time.Duration
	SkipPaused      bool
	Jitter          time.Duration
	Start, End      time.Time
	Paused          bool
	Error           string    // why Kagzi paused it
	Last            time.Time // the newest tick that was decided; of a new schedule, when it was created
	Next            time.Time // when a coordinator looks at it next, at its next tick; in the past if it is overdue, zero if never
	Active, Queued  bool      // whether a run of it is under way, and whether one waits for that
	CreatedAt       time.Time
}

func scheduleInfo(t *store.Template) ScheduleInfo {
	var spec scheduleSpec
	_ = json.Unmarshal(t.Spec, &spec) // written by template; Error says if it cannot be read
	info := ScheduleInfo{
		Name: t.Name, Workflow: t.Type, Queue: t.Queue, Input: t.Input, Cron: t.Cron, Every: spec.Every, TimeZone: t.TimeZone,
		Overlap: Overlap(t.Overlap), CatchUp: t.CatchUp, CatchUpAge: spec.CatchUpAge, SkipPaused: spec.SkipPaused, Jitter: spec.Jitter,
		Start: spec.Start, End: spec.End, Paused: t.Paused, Error: t.Problem, Last: t.Cursor, Next: t.Next,
		Active: t.Active, Queued: t.Queued, CreatedAt: t.CreatedAt,
	}
	_ = json.Unmarshal(t.Metadata, &info.Metadata) // written by startOptions, from a map of strings
	return info
}

// GetSchedule returns what is known of a schedule, or [ErrScheduleNotFound].
func (c *Client) GetSchedule(ctx context.Context, name string) (ScheduleInfo, error) {
	t, err := c.schedule(ctx, name)
	if err != nil {
		return ScheduleInfo{}, failed(public(err), "get schedule %.60q", name)
	}
	return scheduleInfo(t), nil
}

func (c *Client) schedule(ctx context.Context, name string) (*store.Template, error) {
	err := validateName("schedule name", name)
	if err == nil {
		err = c.checkSchema(ctx)
	}
	if err != nil {
		return nil, err
	}
	return c.store.Schedule(ctx, c.scheduleID(name))
}

// A ScheduleFilter chooses schedules; the zero value means all.
type ScheduleFilter struct {
	Workflow string // that they start
	After    string // the name of the last schedule of the page before
	Limit    int    // zero: 100
}

// ListSchedules returns schedules in order of their names, byte by byte. The next page is After the last one's name.
func (c *Client) ListSchedules(ctx context.Context, f ScheduleFilter) ([]ScheduleInfo, error) {
	if f.Limit < 0 {
		return nil, fmt.Errorf("kagzi: list schedules: limit %d is negative", f.Limit)
	}
	for field, text := range map[string]string{"workflow name": f.Workflow, "schedule name": f.After} {
		if text == "" {
			continue
		}
		if err := validateName(field, text); err != nil {
			return nil, failed(err, "list schedules")
		}
	}
	if err := c.checkSchema(ctx); err != nil {
		return nil, err
	}
	rows, err := c.store.Schedules(ctx, f.Workflow, f.After, cmp.Or(f.Limit, 100))
	if err != nil {
		return nil, failed(err, "list schedules")
	}
	out := make([]ScheduleInfo, len(rows))
	for i, t := range rows {
		out[i] = scheduleInfo(t)
	}
	return out, nil
}

// NextFires returns the next n times at which the schedule starts a run, as things stand: fewer if its End comes first.
// What is overdue comes first, as far as CatchUp, CatchUpAge and Overlap let it. For a paused schedule they are those it
// would have if it were resumed now.
func (c *Client) NextFires(ctx context.Context, name string, n int) ([]time.Time, error) {
	if n < 0 || n > mostTicks {
		return nil, fmt.Errorf("kagzi: next fires of schedule %.60q: give a number up to %d, not %d", name, mostTicks, n)
	}
	t, err := c.schedule(ctx, name)
	var table *timetable
	if err == nil {
		table, err = timetableOf(t)
	}
	if err != nil {
		return nil, failed(public(err), "next fires of schedule %.60q", name)
	}
	if t.Paused && table.spec.SkipPaused {
		t.Cursor = laterOf(t.Cursor, t.Now)
	}
	if t.Overlap == store.OverlapCancelPrevious {
		t.Active = false // by then it is cancelled
	}
	out := make([]time.Time, 0, n)
	overdue, _ := decide(t, t.Now, n)
	for _, r := range overdue.Runs {
		out = append(out, r.Tick.Add(table.offset))
	}
	for at := overdue.Next; len(out) < n && !at.IsZero(); at = table.next(at.Add(-table.offset)) {
		out = append(out, at)
	}
	return out, nil
}

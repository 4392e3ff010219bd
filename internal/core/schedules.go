package core

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/valid"
	"github.com/kagzi/kagzi/store"
)

// scheduleSpace derives a schedule's ID from its namespace and name, so that the ticks of a schedule that is deleted
// and created again are known to have been fired.
var scheduleSpace = uuid.MustParse("6b61677a-6900-5363-8865-64756c657300")

// ScheduleID returns the ID of a schedule.
func (c *Client) ScheduleID(name string) uuid.UUID {
	return uuid.NewSHA1(scheduleSpace, []byte(c.Namespace+":"+name)) // a namespace has no colon
}

// A ScheduleEdit says what to change of a schedule, of which old is the row; nil: there is none.
type ScheduleEdit func(now time.Time, old *store.Template) (*store.Edit, error)

// EditSchedule makes a change, and notifies workers and coordinators.
func (c *Client) EditSchedule(ctx context.Context, tx pgx.Tx, what, name string, edit ScheduleEdit) error {
	err := valid.Name("schedule name", name)
	if err == nil {
		err = c.CheckSchema(ctx, tx)
	}
	var fired []store.DueRun
	if err == nil {
		fired, err = c.Store.Schedules.Edit(ctx, tx, c.ScheduleID(name), edit)
	}
	if err == nil {
		err = c.Hints.Schedules(ctx, tx, fired)
	}
	if err != nil {
		return failure.Wrap(c.Public(ctx, err), "%s %.60q", what, name)
	}
	return nil
}

// ScheduleEntry returns an entry of the audit log about a schedule.
func ScheduleEntry(action, name string, cfg *ChangeConfig) store.AuditEntry {
	return store.NewEntry(action, store.OnSchedule, name, cfg.Why)
}

// TimeText returns a time as the audit log has it; empty for none.
func TimeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

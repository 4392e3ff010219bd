package core

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/kagzi/kagzi/internal/timetable"
	"github.com/kagzi/kagzi/store"
)

// ScheduleChanged returns the entry with what the new template changes; nil if that is nothing, as when a program
// declares its schedules at its start.
func (c *Client) ScheduleChanged(entry store.AuditEntry, old, t *store.Template) *store.AuditEntry {
	if old == nil {
		entry.Action, old = store.ActionCreated, &store.Template{}
	}
	entry.Change("workflow", old.Type, t.Type)
	entry.Change("queue", old.Queue, t.Queue)
	entry.Change("version", old.Version, t.Version)
	entry.Change("priority", old.Priority, t.Priority)
	oldKey, oldGroup := KeyOrGroup(old.Key)
	key, group := KeyOrGroup(t.Key)
	entry.Change("key", oldKey, key)
	entry.Change("group", oldGroup, group)
	entry.Change("retry_policy", jsonText(old.RetryPolicy), jsonText(t.RetryPolicy))
	entry.Change("metadata", jsonText(old.Metadata), jsonText(t.Metadata))
	entry.Change("headers", jsonText(old.Headers), jsonText(t.Headers))
	c.inputChanged(&entry, old.Input, t.Input)
	entry.Change("cron", old.Cron, t.Cron)
	entry.Change("time_zone", old.TimeZone, t.TimeZone)
	entry.Change("overlap", old.Overlap, t.Overlap)
	entry.Change("catch_up", old.CatchUp, t.CatchUp)
	timingChanged(&entry, old.Timing, t.Timing)
	entry.Change("timeout", old.Timeout, t.Timeout)
	entry.Change("publish_runs", old.Publishes, t.Publishes)
	if old.Paused && old.Problem != "" {
		entry.Change("problem", old.Problem, "") // Schedule resumes a schedule that Kagzi has paused
	}
	if entry.Changes == nil {
		return nil
	}
	return &entry
}

// timingChanged adds the changes of what is stored as the template's Timing.
func timingChanged(entry *store.AuditEntry, old, saved json.RawMessage) {
	var from, to timetable.Spec
	_ = json.Unmarshal(old, &from) // one that cannot be read is replaced
	_ = json.Unmarshal(saved, &to) // written by template
	entry.Change("every", from.Every, to.Every)
	entry.Change("catch_up_age", from.CatchUpAge, to.CatchUpAge)
	entry.Change("skip_paused", from.SkipPaused, to.SkipPaused)
	entry.Change("jitter", from.Jitter, to.Jitter)
	entry.Change("start", TimeText(from.Start), TimeText(to.Start))
	entry.Change("end", TimeText(from.End), TimeText(to.End))
}

// inputChanged adds a change of the input, without its content: a reader of the log may lack the right to read inputs.
// A Sealer makes other bytes of the same input each time.
func (c *Client) inputChanged(entry *store.AuditEntry, old, saved []byte) {
	if bytes.Equal(old, saved) || bytes.Equal(c.Payloads.Shown(old), c.Payloads.Shown(saved)) {
		return
	}
	size := func(input []byte) string {
		if input == nil {
			return ""
		}
		return fmt.Sprintf("%d bytes", len(c.Payloads.Shown(input)))
	}
	from, to := size(old), size(saved)
	if from == to {
		to = "other " + to
	}
	entry.Change("input", from, to)
}

// jsonText returns JSON in one form: the database writes it in another one than we do. What is empty becomes an empty
// text.
func jsonText(data json.RawMessage) string {
	in := json.NewDecoder(bytes.NewReader(data))
	in.UseNumber()
	var v any
	if in.Decode(&v) != nil || v == nil {
		return ""
	}
	if m, ok := v.(map[string]any); ok && len(m) == 0 {
		return ""
	}
	text, _ := json.Marshal(v) // decoded from JSON
	return string(text)
}

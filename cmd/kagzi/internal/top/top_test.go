package top

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/health"
)

// A desk is a view whose source and clock the test moves.
type desk struct {
	t    *testing.T
	m    *Model
	now  time.Time
	shot Snapshot
	err  error
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	t.Parallel()
	d := &desk{t: t, now: time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC)}
	d.shot = Snapshot{
		Health: health.Report{
			Status: health.Degraded,
			Checks: []health.Check{
				{Name: "database", Status: health.Healthy, Detail: "Answers."},
				{Name: "pauses", Status: health.Degraded, Detail: "Queue shop is paused."},
			},
			Workers: health.Workers{Live: 2, Silent: 1, Active: 12, Most: 100},
		},
		Stats: admin.Stats{
			Workflows: []admin.WorkflowStats{
				{Queue: "reports", Workflow: "report", Due: 3, DueSince: d.now.Add(-time.Minute), Running: 5},
				{
					Queue: "shop", Workflow: "checkout", Due: 40, DueMore: true, DueSince: d.now.Add(-time.Hour),
					Failed: []admin.FailStats{{Kind: "timeout", Runs: 7}},
				},
			},
			Queues: []admin.QueueStats{{Queue: "reports", Used: 5, Slots: 50}},
			Rates:  admin.Rates{Starts: 80, Completed: 60, Failed: 0.5},
		},
		Workers: []admin.WorkerInfo{{
			ID: "w1", Status: "ONLINE", Active: 12, MaxConcurrent: 50, Completed: 100,
			Queues: []string{"shop"},
		}, {ID: "w2", Status: "DRAINING", MaxConcurrent: 50}},
		Failures: []kagzi.RunInfo{{
			ID: "r1", Workflow: "checkout", Kind: "unavailable",
			Error: "kagzi: the provider\x1b[2J answers 503", EndedAt: d.now.Add(-time.Second),
		}},
	}
	source := func(context.Context) (Snapshot, error) { return d.shot, d.err }
	d.m = New(t.Context(), Config{Source: source, Namespace: "default", Every: time.Second, Now: func() time.Time {
		return d.now
	}})
	d.m.Update(tea.WindowSizeMsg{Width: 100, Height: 20})
	return d
}

// load takes the next snapshot.
func (d *desk) load() tea.Cmd {
	_, next := d.m.Update(d.m.load()())
	return next
}

// press presses keys, and returns the command of the last one.
func (d *desk) press(keys ...string) (cmd tea.Cmd) {
	for _, k := range keys {
		key := tea.Key{Text: k, Code: []rune(k)[0]}
		if k == "tab" {
			key = tea.Key{Code: tea.KeyTab}
		}
		_, cmd = d.m.Update(tea.KeyPressMsg(key))
	}
	return cmd
}

// shows fails the test unless the terminal shows the texts, in this order, and fits.
func (d *desk) shows(texts ...string) {
	d.t.Helper()
	view := d.m.View().Content
	rest := view
	for _, text := range texts {
		_, after, ok := strings.Cut(rest, text)
		if !ok {
			d.t.Errorf("the terminal does not show %q next:\n%s", text, view)
			return
		}
		rest = after
	}
	lines := strings.Split(view, "\n")
	if len(lines) != d.m.height {
		d.t.Errorf("the view has %d lines, want %d:\n%s", len(lines), d.m.height, view)
	}
	for _, line := range lines {
		if n := lipgloss.Width(line); n > d.m.width {
			d.t.Errorf("a line has %d columns, want at most %d: %q", n, d.m.width, line)
		}
	}
}

func TestViews(t *testing.T) {
	d := newDesk(t)
	d.shows("waiting for the database…", "q quit")
	d.load()
	d.shows("kagzi top · default", "degraded: Queue shop is paused.", "workers 2 live, 1 silent · slots 12/100 · "+
		"started 80/s · completed 60/s · failed 0.5/s", "[1 Queues]", "shop", "40+", "1h ago", "none", "7",
		"reports", "5/50")
	d.press("2")
	d.shows("[2 Workers]", "w1", "ONLINE", "12/50", "w2", "DRAINING")
	d.press("tab")
	d.shows("[3 Failures]", "checkout", "unavailable", "the provider [2J answers 503", "r1")
	d.press("4")
	d.shows("[4 Health]", "degraded", "pauses", "healthy", "database")
	d.press("tab")
	d.shows("[1 Queues]")
	d.press("?")
	d.shows("KEYS", "reverse the order", "q quit")
	d.press("?")
	d.shows("[1 Queues]", "shop")
	d.press("?", "3")
	d.shows("[3 Failures]", "r1")
	d.press("1")
	for _, width := range []int{20, 40, 60, 80, 140} {
		d.m.Update(tea.WindowSizeMsg{Width: width, Height: 10})
		for _, view := range []string{"1", "3", "4"} {
			d.press(view)
			d.shows("")
		}
	}
}

func TestSortAndScroll(t *testing.T) {
	d := newDesk(t)
	d.load()
	d.shows("shop", "reports", "sort (due)")
	d.press("s")
	d.shows("reports", "shop", "sort (running)")
	d.press("s")
	d.shows("shop", "reports", "sort (failed)")
	d.press("s")
	d.shows("reports", "shop", "sort (queue)")
	d.press("r")
	d.shows("shop", "reports", "sort (queue, reversed)")
	for i := range 100 {
		d.shot.Stats.Workflows = append(d.shot.Stats.Workflows,
			admin.WorkflowStats{Queue: "q", Workflow: strings.Repeat("x", i)})
	}
	d.load()
	d.press("1", "j", "j", "j", "k")
	d.shows("")
	if d.m.offset != 2 {
		t.Errorf("the first row shown is %d, want 2", d.m.offset)
	}
	for range 20 {
		d.m.Update(tea.KeyPressMsg(tea.Key{Code: tea.KeyPgDown}))
	}
	d.shows("")
	if want := len(d.shot.Stats.Workflows) - d.m.rows(); d.m.offset != want {
		t.Errorf("the last page begins at %d, want %d", d.m.offset, want)
	}
}

func TestRatesComeFromTheCountersOfWorkers(t *testing.T) {
	d := newDesk(t)
	d.load()
	d.now = d.now.Add(10 * time.Second)
	d.shot.Workers = []admin.WorkerInfo{
		{ID: "w1", Status: "ONLINE", Completed: 600, Failed: 5},
		{ID: "w3", Status: "ONLINE", Completed: 100},
	}
	d.load()
	d.press("2")
	d.shows("w1", "50/s", "0.5/s", "w3", "10/s", "0/s")
	for range 100 { // nothing more ends
		d.now = d.now.Add(time.Second)
		d.load()
	}
	d.shows("w1", "0/s", "0/s")
	if n := len(d.m.rates.samples); n > 40 {
		t.Errorf("%d samples are kept", n)
	}
}

func TestTheDatabaseMayBeAway(t *testing.T) {
	d := newDesk(t)
	d.err = errors.New("connection refused")
	d.load()
	d.shows("no answer from Postgres: connection refused", "waiting for the database…")
	d.err = nil
	d.load()
	d.shows("shop")
	d.err = errors.New("connection refused")
	d.now = d.now.Add(12 * time.Second)
	if next := d.load(); next == nil {
		t.Error("it does not try again")
	}
	d.shows("no answer from Postgres since 12:00:00: connection refused", "old figures, of 12:00:00, 12s ago", "shop",
		"1h ago", "reports", "1m ago")
	d.press("4")
	d.shows("unhealthy", "database", "connection refused") // and not the answer that it gave before
	d.press("1")
	d.err = nil
	d.load()
	d.shows("degraded", "workers 2 live")
	d.now = d.now.Add(2 * time.Second)
	d.shows("degraded", "workers 2 live")
	d.now = d.now.Add(3 * time.Second) // a snapshot is under way, and does not come
	if _, next := d.m.Update(beat{}); next == nil {
		t.Error("the terminal is not drawn again")
	}
	d.shows("no answer from Postgres since 12:00:12", "old figures, of 12:00:12, 5s ago")
}

// A queue's slots are no workflow's: they are shown once.
func TestSlotsOfAQueueAreShownOnce(t *testing.T) {
	d := newDesk(t)
	d.shot.Stats.Workflows = append(d.shot.Stats.Workflows, admin.WorkflowStats{Queue: "reports", Workflow: "digest"})
	d.shot.Health.Workers.Hung = 1
	d.load()
	d.shows("1 slot hung", "QUEUE'S SLOTS", "report ", "5/50", "digest")
	if n := strings.Count(d.m.View().Content, "5/50"); n != 1 {
		t.Errorf("the slots of the queue are shown %d times:\n%s", n, d.m.View().Content)
	}
}

func TestFailuresShowTheirRuns(t *testing.T) {
	d := newDesk(t)
	d.shot.Failures[0].ID, d.shot.Failures[0].ExternalID = "01a213ae-b289-703c-ab1e-652112f62c41", "order-42"
	d.load()
	d.press("3")
	for _, width := range []int{100, 120, 160} {
		d.m.Update(tea.WindowSizeMsg{Width: width, Height: 20})
		d.shows("01a213ae-b289-703c-ab1e-652112f62c41")
	}
}

func TestNarrowTerminalsCutNoFigure(t *testing.T) {
	d := newDesk(t)
	d.load()
	for width := 30; width < 120; width++ {
		d.m.Update(tea.WindowSizeMsg{Width: width, Height: 20})
		if line := strings.Split(d.m.View().Content, "\n")[1]; strings.Contains(line, "…") {
			t.Errorf("at %d columns the figures are %q", width, line)
		}
	}
}

func TestFreezeAndQuit(t *testing.T) {
	d := newDesk(t)
	d.load()
	d.press("p")
	d.shows("frozen at 12:00:00")
	if _, cmd := d.m.Update(tick{d.m.reload}); cmd != nil {
		t.Error("a frozen view takes another snapshot")
	}
	old := d.m.reload
	if cmd := d.press("p"); cmd == nil {
		t.Error("a view that is thawed takes no snapshot")
	}
	if _, cmd := d.m.Update(tick{old}); cmd != nil {
		t.Error("two chains of snapshots go on")
	}
	if cmd := d.press("q"); cmd == nil || cmd() != tea.Quit() {
		t.Error("q does not quit")
	}
}

package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
	"github.com/kagzi/kagzi/health"
)

// titles are the names of the views.
var titles = [views]string{queues: "Queues", workers: "Workers", failures: "Failures", checks: "Health"}

// sorts are the columns by which a view can be sorted, the first one by default.
var sorts = [views][]string{
	queues:   {"due", "running", "failed", "queue", "workflow"},
	workers:  {"started", "slots", "done", "host"},
	failures: {"ended", "kind", "workflow"},
	checks:   {"status"},
}

// body returns the header and the rows of the view, in lines.
func (m *Model) body(s *screen.Screen) string {
	switch m.view {
	case queues:
		return m.queueTable(s).String()
	case workers:
		return m.workerTable(s).String()
	case failures:
		return m.failureTable(s).String()
	default:
		return m.checkLines(s)
	}
}

// help is what ? shows in place of the table.
const help = `KEYS
1 2 3 4     the tables; so do tab, ← and →
s           sort by the next column
r           reverse the order
↑ ↓         scroll; so do page up, page down and home
p           freeze the view, and let it go on
?           this help, and back
q           quit

DUE         runs that no worker executes although their time has come
SLOTS       runs under way, of how many that may be, at the workers' last heartbeats;
            those of a queue are shown once, for all of its workflows
FAILED/H    runs that failed within the last hour
`

// chrome is the number of lines around the rows of a table: three above, its header, an empty line and the keys.
const chrome = 6

// rows is how many rows of a table have room.
func (m *Model) rows() int { return max(m.height-chrome, 1) }

// View draws the terminal.
func (m *Model) View() tea.View {
	s := &screen.Screen{Width: m.width, Color: m.cfg.Color, Now: m.cfg.Now}
	lines := []string{m.headline(s), m.summary(s), m.tabs(s)}
	figures := s
	if m.old() { // as they were then, and all in one tone
		figures = &screen.Screen{Width: m.width, Now: func() time.Time { return m.at }}
	}
	if m.at.IsZero() {
		lines = append(lines, "", "waiting for the database…")
	} else {
		text := m.body(figures)
		if m.help {
			text = help
		}
		body := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		head, rows := body[0], body[1:]
		m.offset = max(0, min(m.offset, len(rows)-m.rows()))
		lines = append(lines, head)
		lines = append(lines, rows[m.offset:min(len(rows), m.offset+m.rows())]...)
		if len(rows) == 0 {
			lines = append(lines, s.Paint(screen.Faint, "nothing here"))
		}
		if m.old() {
			for i := 3; i < len(lines); i++ {
				lines[i] = s.Paint(screen.Faint, lines[i])
			}
		}
	}
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	lines = append(lines[:max(m.height-1, 1)], s.Paint(screen.Faint, screen.Cut(m.keys(), m.width)))
	fits := lipgloss.NewStyle().MaxWidth(max(m.width, 1)) // a very narrow terminal cuts lines
	for i, line := range lines {
		lines[i] = fits.Render(line)
	}
	v := tea.NewView(strings.Join(lines, "\n"))
	v.AltScreen = true
	v.WindowTitle = "kagzi top"
	return v
}

// clock is the form of a time of the day.
const clock = "15:04:05"

// headline says how all is.
func (m *Model) headline(s *screen.Screen) string {
	title := "kagzi top · " + m.cfg.Namespace + " · "
	switch {
	case m.err != nil && m.at.IsZero():
		return s.Paint(screen.Bad, screen.Cut(title+"no answer from Postgres: "+screen.Line(m.err.Error()), m.width))
	case m.old():
		line := title + "no answer from Postgres since " + m.at.Format(clock)
		if m.err != nil {
			// the line says it already
			line += ": " + strings.TrimPrefix(screen.Line(m.err.Error()), "The database does not serve this client: ")
		}
		return s.Paint(screen.Bad, screen.Cut(line, m.width))
	case m.at.IsZero():
		return title + "…"
	}
	tone := map[health.Status]screen.Tone{
		health.Healthy: screen.Good, health.Degraded: screen.Warning,
		health.Unhealthy: screen.Bad,
	}[m.shot.Health.Status]
	line := string(m.shot.Health.Status)
	if i := slices.IndexFunc(m.shot.Health.Checks, func(c health.Check) bool {
		return c.Status == m.shot.Health.Status && c.Status != health.Healthy
	}); i >= 0 {
		line += ": " + screen.Line(m.shot.Health.Checks[i].Detail)
	}
	at := m.at.Format(clock)
	if m.frozen {
		at = "frozen at " + at
	}
	return title + at + " · " + s.Paint(tone, screen.Cut(line, max(m.width-len([]rune(title+at))-3, 8)))
}

func hungSlots(n int) string {
	if n == 1 {
		return "slot hung"
	}
	return "slots hung"
}

// summary sums up the workers.
func (m *Model) summary(s *screen.Screen) string {
	if m.at.IsZero() {
		return ""
	}
	w := m.shot.Health.Workers
	line := fmt.Sprintf("workers %d live", w.Live)
	for _, n := range []struct {
		n    int
		what string
	}{{w.Draining, "draining"}, {w.Silent, "silent"}, {w.Hung, hungSlots(w.Hung)}} {
		if n.n > 0 {
			line += fmt.Sprintf(", %d %s", n.n, n.what)
		}
	}
	parts := []string{line, fmt.Sprintf("slots %d/%d", w.Active, w.Most)}
	for _, r := range []struct {
		what string
		rate float64
	}{
		{"started", m.shot.Stats.Rates.Starts},
		{"completed", m.shot.Stats.Rates.Completed},
		{"failed", m.shot.Stats.Rates.Failed},
		{"steps", m.shot.Stats.Rates.Steps},
	} {
		parts = append(parts, r.what+" "+screen.PerSecond(r.rate))
	}
	age := ""
	if m.old() {
		age = fmt.Sprintf("old figures, of %s, %s ago · ", m.at.Format(clock),
			screen.Short(m.cfg.Now().Sub(m.at).Round(time.Second)))
	}
	line = strings.Join(parts, " · ")
	// a narrow terminal shows fewer figures, and none by half
	for lipgloss.Width(age+line) > m.width && len(parts) > 1 {
		parts = parts[:len(parts)-1]
		line = strings.Join(parts, " · ")
	}
	if age == "" {
		return screen.Cut(line, m.width)
	}
	return s.Paint(screen.Bad, screen.Cut(age, m.width)) +
		s.Paint(screen.Faint, screen.Cut(line, max(m.width-lipgloss.Width(age), 0)))
}

func (m *Model) tabs(s *screen.Screen) string {
	var parts []string
	for i, title := range titles {
		name := fmt.Sprintf("%d %s", i+1, title)
		if view(i) == m.view {
			name = s.Paint(screen.Strong, "["+name+"]")
		} else {
			name = " " + name + " "
		}
		parts = append(parts, name)
	}
	return strings.Join(parts, " ")
}

func (m *Model) keys() string {
	order := sorts[m.view][m.sort[m.view]]
	if m.reverse[m.view] {
		order += ", reversed"
	}
	return "q quit · tab next · s sort (" + order + ") · r reverse · ↑↓ scroll · p freeze · ? help"
}

// sorted returns a sorted copy of the rows. orders are the comparisons of the view's sorts.
func sorted[T any](m *Model, rows []T, orders ...func(a, b T) int) []T {
	rows = slices.Clone(rows)
	order := orders[m.sort[m.view]]
	slices.SortStableFunc(rows, func(a, b T) int {
		if m.reverse[m.view] {
			return order(b, a)
		}
		return order(a, b)
	})
	return rows
}

func (m *Model) queueTable(s *screen.Screen) *screen.Table {
	// The slots are those of the whole queue, so only its first row has them.
	t := s.Table(screen.Column{Title: "QUEUE", Min: 10}, screen.Column{Title: "WORKFLOW", Min: 12},
		screen.Column{Title: "DUE", Right: true}, screen.Column{Title: "DUE SINCE", Drop: 1},
		screen.Column{Title: "RUNNING", Right: true}, screen.Column{Title: "SLEEPING", Right: true},
		screen.Column{Title: "DELAYED", Right: true, Drop: 4}, screen.Column{Title: "PAUSED", Right: true, Drop: 3},
		screen.Column{Title: "QUEUE'S SLOTS", Right: true, Drop: 2}, screen.Column{Title: "FAILED/H", Right: true})
	rows := sorted(
		m, m.shot.Stats.Workflows,
		func(a, b admin.WorkflowStats) int { return cmp.Compare(b.Due, a.Due) },
		func(a, b admin.WorkflowStats) int { return cmp.Compare(b.Running, a.Running) },
		func(a, b admin.WorkflowStats) int { return cmp.Compare(failedRuns(b), failedRuns(a)) },
		func(a, b admin.WorkflowStats) int { return cmp.Compare(a.Queue, b.Queue) },
		func(a, b admin.WorkflowStats) int { return cmp.Compare(a.Workflow, b.Workflow) },
	)
	slots := map[string]screen.Cell{}
	for _, w := range rows {
		slots[w.Queue] = screen.Cell{Text: "none", Tone: screen.Bad}
	}
	for _, q := range m.shot.Stats.Queues {
		slots[q.Queue] = screen.Cell{Text: fmt.Sprintf("%d/%d", q.Used, q.Slots)}
	}
	for _, w := range rows {
		failed := screen.Cell{Text: fmt.Sprint(failedRuns(w)), Tone: screen.Bad}
		if failed.Text == "0" {
			failed.Tone = screen.Plain
		}
		t.Row(w.Queue, w.Workflow, orMore(w.Due, w.DueMore), s.Time(w.DueSince), w.Running, orMore(w.Sleeping, w.More),
			w.Delayed, w.Paused, slots[w.Queue], failed)
		delete(slots, w.Queue)
	}
	return t
}

func orMore(n int, more bool) string {
	if more {
		return fmt.Sprintf("%d+", n)
	}
	return fmt.Sprint(n)
}

func failedRuns(w admin.WorkflowStats) (n int) {
	for _, f := range w.Failed {
		n += f.Runs
	}
	return n
}

func (m *Model) workerTable(s *screen.Screen) *screen.Table {
	t := s.Table(screen.Column{Title: "WORKER"}, screen.Column{Title: "STATUS"},
		screen.Column{Title: "SLOTS", Right: true}, screen.Column{Title: "DONE", Right: true},
		screen.Column{Title: "FAILED", Right: true, Drop: 3}, screen.Column{Title: "QUEUES", Min: 8, Drop: 1},
		screen.Column{Title: "HOST", Min: 8, Drop: 2}, screen.Column{Title: "HEARTBEAT", Drop: 4})
	done := func(w admin.WorkerInfo) float64 {
		completed, failed := m.rates.of(w.ID)
		return completed + failed
	}
	rows := sorted(
		m, m.shot.Workers,
		func(a, b admin.WorkerInfo) int { return b.StartedAt.Compare(a.StartedAt) },
		func(a, b admin.WorkerInfo) int { return cmp.Compare(b.Active, a.Active) },
		func(a, b admin.WorkerInfo) int { return cmp.Compare(done(b), done(a)) },
		func(a, b admin.WorkerInfo) int { return cmp.Compare(a.Hostname, b.Hostname) },
	)
	for _, w := range rows {
		completed, failed := m.rates.of(w.ID)
		status := screen.Cell{Text: w.Status, Tone: screen.Good}
		if w.Status != "ONLINE" {
			status.Tone = screen.Warning
		}
		t.Row(w.ID, status, fmt.Sprintf("%d/%d", w.Active, w.MaxConcurrent), screen.PerSecond(completed),
			screen.PerSecond(failed), strings.Join(w.Queues, ","), w.Hostname, s.Time(w.HeartbeatAt))
	}
	return t
}

func (m *Model) failureTable(s *screen.Screen) *screen.Table {
	t := s.Table(screen.Column{Title: "ENDED"}, screen.Column{Title: "WORKFLOW", Min: 10}, screen.Column{
		Title: "KIND",
		Min:   8,
	}, screen.Column{Title: "ERROR", Min: 16}, screen.Column{Title: "ID", Min: 10, Drop: 2},
		screen.Column{Title: "RUN", Drop: 1})
	rows := sorted(
		m, m.shot.Failures,
		func(a, b kagzi.RunInfo) int { return b.EndedAt.Compare(a.EndedAt) },
		func(a, b kagzi.RunInfo) int { return cmp.Compare(a.Kind, b.Kind) },
		func(a, b kagzi.RunInfo) int { return cmp.Compare(a.Workflow, b.Workflow) },
	)
	for _, r := range rows {
		t.Row(s.Time(r.EndedAt), r.Workflow, screen.Cell{Text: string(r.Kind), Tone: screen.Bad},
			strings.TrimPrefix(r.Error, "kagzi: "), r.ExternalID, r.ID)
	}
	return t
}

// checkLines shows the checks with their details in full.
func (m *Model) checkLines(s *screen.Screen) string {
	const indent = 9 + 1 + 13 + 1
	var b strings.Builder
	b.WriteString(s.Paint(screen.Faint, fmt.Sprintf("%-9s %-13s %s", "STATUS", "CHECK", "DETAIL")) + "\n")
	found := slices.Clone(m.shot.Health.Checks)
	if i := slices.IndexFunc(found, func(c health.Check) bool { return c.Name == "database" }); i >= 0 && m.err != nil {
		found[i].Status, found[i].Detail = health.Unhealthy, m.err.Error()
	}
	rows := sorted(m, found, func(a, b health.Check) int {
		switch {
		case a.Status.Worse(b.Status):
			return -1
		case b.Status.Worse(a.Status):
			return 1
		}
		return 0
	})
	for _, c := range rows {
		tone := map[health.Status]screen.Tone{
			health.Healthy: screen.Good, health.Degraded: screen.Warning,
			health.Unhealthy: screen.Bad,
		}[c.Status]
		detail := strings.ReplaceAll(screen.Fill(screen.Line(c.Detail), max(m.width-indent, 20), 0), "\n",
			"\n"+strings.Repeat(" ", indent))
		b.WriteString(s.Paint(tone, fmt.Sprintf("%-9s", c.Status)) + fmt.Sprintf(" %-13s ", c.Name) + detail + "\n")
	}
	return b.String()
}

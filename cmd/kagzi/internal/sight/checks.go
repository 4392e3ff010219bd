package sight

import (
	"fmt"
	"strings"

	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/internal/deeds"
)

func healthCell(s health.Status) screen.Cell {
	tone := map[health.Status]screen.Tone{
		health.Healthy: screen.Good, health.Degraded: screen.Warning,
		health.Unhealthy: screen.Bad,
	}
	return screen.Cell{Text: string(s), Tone: tone[s]}
}

// next are the commands that help with what a check has found, behind its detail.
var next = map[string]string{
	"compensations": "kagzi runs steps RUN shows the errors, kagzi runs resume RUN resumes the run.",
	"consumers":     "kagzi consumers lists them.",
	"doubts":        "kagzi runs doubts lists them, kagzi runs resolve RUN STEP says what has happened.",
	"events":        "kagzi consumers lists the consumers.",
	"failures": "kagzi runs list --status failed --ended-since 1h lists them, kagzi runs resume --status failed " +
		"--ended-since 1h --dry-run says which would be resumed.",
	"histories": "kagzi runs get RUN says more.",
	"inboxes": "kagzi runs messages RUN --unread lists them, kagzi runs drop-message RUN MESSAGE-ID " +
		"removes one.",
	"keys":     "kagzi runs get RUN says more.",
	"messages": "kagzi runs get RUN names each message, and both commands.",
	"strays":   "kagzi workers log WORKER-ID shows what befell the worker.",
	"suspects": "kagzi runs list --waiting-on recovery lists them, and kagzi runs get RUN says more.",
	"hung":     "kagzi runs get RUN says more.",
	"nested":   "kagzi runs get RUN says more.",
	"limits": "kagzi queues list and kagzi limits list show the limits, kagzi queues set and kagzi limits set " +
		"change them.",
	"pauses":      "kagzi pauses lists the pauses, kagzi unpause ends one.",
	"quarantined": "kagzi runs get RUN shows the error, kagzi runs resume RUN resumes the run.",
	"queues":      "kagzi workers list shows who takes what.",
	"schedules":   "kagzi schedules list shows them.",
	"workers":     "kagzi workers list --all shows them.",
}

// checkText returns the detail of a check, in terms of this program.
func checkText(c health.Check) string {
	text := deeds.InCommands(c.Detail)
	text, single := strings.CutSuffix(strings.TrimSuffix(text, " An unpause ends it."),
		" Each goes on once it is unpaused.")
	if single {
		return text + " kagzi runs list --paused lists them, kagzi runs unpause --paused lets them go on."
	}
	if advice, ok := next[c.Name]; ok && c.Status != health.Healthy {
		text += " " + advice
	}
	return text
}

func printCheck(p *command.Program, c health.Check) error {
	cell, text := healthCell(c.Status), checkText(c)
	if _, from := p.DB.Source(); c.Name == "database" && c.Status == health.Unhealthy {
		text += fmt.Sprintf(" It was looked for at %s, by %s.", p.DB.Server(), from)
	}
	return printFinding(p.Screen, cell.Tone, fmt.Sprintf("%-9s", cell.Text), fmt.Sprintf("%-13s", c.Name), text)
}

// printFinding prints a text behind a mark and what it is about.
func printFinding(on *screen.Screen, tone screen.Tone, mark, about, text string) error {
	indent := len(mark) + len(about) + 2
	lines := screen.Fill(screen.Line(deeds.InCommands(text)), max(on.Width-indent, 0), 0)
	return on.Printf("%s %s %s", on.Paint(tone, mark), on.Paint(screen.Faint, about),
		strings.ReplaceAll(lines, "\n", "\n"+strings.Repeat(" ", indent)))
}

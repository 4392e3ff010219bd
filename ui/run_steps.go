package ui

import (
	"context"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/explain"
	"github.com/kagzi/kagzi/ui/internal/gantt"
)

// A stepTable is the view model of the table of steps.
type stepTable struct {
	Rows  []stepRow
	Pager pager
	All   int // steps that the run has
	Match int
	Clear string // path without the filter; empty if there is none
}

// A stepRow is a step with its newest attempt. Earlier ones are folded.
type stepRow struct {
	HTMLID  string
	Type    string
	Offset  string // when the attempt began, from the run's start
	Last    attemptRow
	Earlier []attemptRow // the newest first
}

// An attemptRow is one attempt of a step.
type attemptRow struct {
	kagzi.StepAttempt
	Input, Output payload
	Took          string // empty while it is under way, or if it is not
	Waits         bool   // nothing is done meanwhile
	NotNeeded     bool   // a compensation of a run that completed
	Stack         bool   // the error has several lines
	By            string // the name of the worker that recorded it last; empty if the run had one worker only
	// when the run of a compensation began, which was registered at StartedAt; zero for others
	Began time.Time
	Turn  bool // it is a compensation that waits for its turn
}

// Detailed reports whether there is something to unfold.
func (a attemptRow) Detailed() bool {
	return a.Input.Any() || a.Output.Any() || a.Stack || len([]rune(a.Error)) > 300 || len(a.Headers) > 0
}

// pagePayloads bounds the payloads that one page shows folded, and the errors. A payload beyond it is a link, or the
// beginning of the error.
const pagePayloads = 256 << 10

// table returns the steps of the choice, and of those the page that the query asks for.
func (p *runPage) table(ctx context.Context, c choice, run kagzi.RunInfo, workers *workersLane,
	h *history,
) (stepTable, error) {
	t := stepTable{All: c.all, Match: len(c.steps)}
	lo, hi, at := c.page("step", c.step, len(c.steps), stepsPerPage)
	t.Pager = at
	if c.filtered() {
		t.Clear = c.edit(func(v url.Values) {
			for _, name := range []string{"name", "state", "row", "step"} {
				v.Del(name)
			}
		})
	}
	known, err := p.payloadsOf(ctx, run.ID, h, c.steps[lo:hi])
	if err != nil {
		return t, err
	}
	page := stepPage{p.payloads, run, workers, known, pagePayloads, !c.undone.IsZero()}
	for _, s := range c.steps[lo:hi] {
		t.Rows = append(t.Rows, page.row(s))
	}
	return t, nil
}

// mostAttempts is how many earlier attempts of a step are shown.
const mostAttempts = 20

// A stepPage makes the rows of a page.
type stepPage struct {
	payloads payloads
	run      kagzi.RunInfo
	workers  *workersLane
	known    map[attemptKey]attemptPayloads
	room     int  // bytes of payloads and errors that it may have besides
	undoes   bool // the run's compensations have begun
}

func (p *stepPage) row(s *gantt.Step) stepRow {
	row := stepRow{HTMLID: stepID(s.Name), Type: stepType(*s.Last()), Last: p.attempt(*s.Last())}
	if after := s.Last().StartedAt.Sub(p.run.CreatedAt); !s.Last().StartedAt.IsZero() && after >= 0 {
		row.Offset = "+" + duration(after)
	}
	for i := len(s.Attempts) - 2; i >= 0 && len(row.Earlier) < mostAttempts; i-- {
		row.Earlier = append(row.Earlier, p.attempt(s.Attempts[i]))
	}
	return row
}

// fewOfError is how much of an error is shown if there is no room for more.
const fewOfError = 299

func (p *stepPage) attempt(a kagzi.StepAttempt) attemptRow {
	if n := len(a.Error); n > fewOfError {
		if p.room -= n; p.room < 0 {
			a.Error = first(fewOfError, oneLine(a.Error))
		}
	}
	row := attemptRow{
		StepAttempt: a, Waits: gantt.Waits(a), NotNeeded: explain.NotNeeded(p.run.Status, a),
		Stack: strings.Contains(a.Error, "\n"), Turn: p.undoes && gantt.Undoes(a) && a.Status == kagzi.StatusPending,
	}
	if !a.EndedAt.IsZero() && !a.StartedAt.IsZero() && !instant(a) && !row.NotNeeded &&
		a.Status != kagzi.StatusPending {
		row.Took = duration(max(0, a.EndedAt.Sub(a.StartedAt)))
	}
	if began := gantt.Undoing(a, a.EndedAt); !began.From.IsZero() { // since its run began, and not its registration
		row.Began, row.Took = began.From, ""
		if !a.EndedAt.IsZero() {
			row.Took = duration(began.Len())
		}
	}
	if p.workers.Workers > 1 && a.Worker != "" {
		row.By = p.workers.Name(a.Worker)
	}
	has := p.known[keyOf(a)]
	row.Headers = has.headers
	raw := pathOf(p.run) + "/raw?" +
		url.Values{"step": {a.Step}, "attempt": {strconv.Itoa(a.Attempt)}}.Encode() + "&of="
	show := func(data []byte, size int, raw string) payload {
		if len(data) < size || size > p.room {
			return p.payloads.sizeOnly(size, raw)
		}
		p.room -= size
		return p.payloads.show(data, raw)
	}
	if string(has.output) == "null" { // of a Do
		has.output, has.outputSize = nil, 0
	}
	row.Input, row.Output = show(has.input, has.inputSize, raw+"input"), show(has.output, has.outputSize, raw+"output")
	return row
}

// Words says in a few words what the status does not.
func (a attemptRow) Words() string {
	switch {
	case !a.Began.IsZero():
		return "registered then; its run began"
	case a.Turn:
		return "waits its turn"
	case a.Status == kagzi.StatusRunning:
		return a.awaits()
	case a.Type == "SIGNAL" && a.Status == kagzi.StatusCompleted:
		return "the message came"
	case a.Status == kagzi.StatusPending && a.Type == "FUNCTION":
		return "its worker has gone; it is made again"
	case a.Status == kagzi.StatusPending && a.Type == "COMPENSATION":
		return "runs if the run fails"
	case a.Status == kagzi.StatusFailed && !a.WakeAt.IsZero():
		return "next attempt"
	}
	return ""
}

// awaits says what an attempt that is under way waits for, or what happens at its time.
func (a attemptRow) awaits() string {
	switch {
	case a.Type == "SIGNAL" && a.WakeAt.IsZero():
		return "for a message"
	case a.Type == "SLEEP":
		return "wakes"
	case a.Type == "SIGNAL":
		return "gives up"
	case a.Type == "MARKER" && !a.WakeAt.IsZero():
		return "times out"
	}
	return ""
}

// When returns the time that Words is about; zero if it is about none.
func (a attemptRow) When() time.Time {
	switch {
	case !a.Began.IsZero():
		return a.Began
	case a.Type == "SIGNAL" && a.Status == kagzi.StatusCompleted:
		return a.EndedAt
	case a.Status == kagzi.StatusRunning && !(a.Type == "FUNCTION"), a.Status == kagzi.StatusFailed:
		return a.WakeAt
	}
	return time.Time{}
}

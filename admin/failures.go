package admin

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store/inspect"
)

// A FailureGroup has the runs of a workflow that failed in the same way: see [Client.Failures].
type FailureGroup struct {
	Workflow string    `json:"workflow"`
	Step     string    `json:"step,omitempty"` // as the error names it; empty if it names none
	Kind     kind.Kind `json:"kind"`
	// the first line of the error, with "#" for each number and each ID, and without the step and the attempts
	Text   string      `json:"text"`
	Runs   int         `json:"runs"`            // those that were resumed or deleted since do not count
	More   bool        `json:"more,omitempty"`  // there may be more, which failed before First
	First  time.Time   `json:"first,omitzero"`  // when the first of them failed
	Last   time.Time   `json:"last,omitzero"`   // when the last of them failed
	Newest kagzi.RunID `json:"newest"`          // the run that failed last
	Error  string      `json:"error"`           // the beginning of that run's error
	Trend  []int       `json:"trend,omitempty"` // how many failed in 24 equal parts of the time, from old to new
}

// trendParts is in how many parts a trend divides the time.
const trendParts = 24

// mostFailuresWithin bounds the time of Failures, as retention does.
const mostFailuresWithin = 366 * 24 * time.Hour

// Failures returns the runs that failed within the time and were not resumed, in groups of one cause: the same
// workflow, step, kind, and text apart from its numbers. The group whose last failure is the newest comes first.
//
// It reads a bounded number of rows: of each kind the last thousand, or fewer if there are more than four kinds, and 50
// kinds at most. [Runs.Count] counts all.
//
// It returns an error for a time that is not positive, or longer than 366 days. A request that the database refuses or
// does not answer within 5 seconds fails. Failures is safe for concurrent use.
func (c *Client) Failures(ctx context.Context, within time.Duration) ([]FailureGroup, error) {
	ctx, cancel := context.WithTimeout(ctx, statsTimeout)
	defer cancel()
	err := c.core.Usable(ctx)
	if err == nil && (within <= 0 || within > mostFailuresWithin) {
		err = failure.Of(kind.BadRequest, fmt.Errorf("the time is %v: give one up to 366 days", within))
	}
	if err == nil {
		err = c.core.CheckSchema(ctx, nil)
	}
	var read []inspect.FailedRun
	if err == nil {
		read, err = c.core.Inspect.FailedRuns(ctx, within)
	}
	if err != nil {
		return nil, failure.Wrap(c.core.Public(ctx, err), "failures")
	}
	return failureGroups(read, within), nil
}

// failureGroups groups the runs, whose newest failures come first.
func failureGroups(runs []inspect.FailedRun, within time.Duration) []FailureGroup {
	type cause struct{ workflow, step, kind, text string }
	at := map[cause]int{}
	var out []FailureGroup
	more := map[kind.Kind]bool{}
	for _, r := range runs {
		step, said := causeOf(r.Error)
		said = strings.TrimSuffix(said, ": "+r.Kind)
		c := cause{r.Type, step, r.Kind, said}
		i, known := at[c]
		if !known {
			i, at[c] = len(out), len(out)
			out = append(out, FailureGroup{
				Workflow: r.Type, Step: step, Kind: kind.Kind(r.Kind), Text: said, Last: r.EndedAt,
				Newest: kagzi.RunID(r.RunID.String()), Error: r.Error, Trend: make([]int, trendParts),
			})
		}
		g := &out[i]
		g.Runs++
		g.First = r.EndedAt
		part := int(trendParts * r.Ago / within) // counted from the newest one
		g.Trend[trendParts-1-min(max(part, 0), trendParts-1)]++
		more[g.Kind] = more[g.Kind] || r.More
	}
	for i := range out {
		out[i].More = more[out[i].Kind]
	}
	return out
}

var (
	// ofStep is what the error of a step says before the step's own message, and what stands around that.
	ofStep = regexp.MustCompile(`(?:kagzi: )?step ("(?:[^"\\\n]|\\.)*"): `)
	// ofAttempts is the end of such an error.
	ofAttempts = regexp.MustCompile(`(?:: [a-z_]+)? \([a-z_]+(?:, [0-9]+ attempts?)?\)$`)
	// numbers are IDs in hexadecimal, and numbers, also those within a word.
	numbers = regexp.MustCompile(`\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b|` +
		`\b(?:0x)?[0-9a-fA-F]*[0-9][0-9a-fA-F]{7,}\b|[0-9]+(?:[.,:][0-9]+)*`)
)

// mostCause bounds the text of a group, in bytes.
const mostCause = 300

// causeOf returns the step that the error of a run names, and what the error says apart from its numbers.
func causeOf(said string) (step, cause string) {
	line, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(said), "kagzi: "), "\n")
	if at := ofStep.FindStringSubmatchIndex(line); at != nil {
		if name, err := strconv.Unquote(line[at[2]:at[3]]); err == nil {
			step, line = name, line[:at[0]]+line[at[1]:]
		}
	}
	line = ofAttempts.ReplaceAllString(line, "")
	return step, text.Sanitize(strings.TrimSpace(numbers.ReplaceAllString(line, "#")), mostCause)
}

package gantt

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kagzi/kagzi"
)

// A Step is a step with all of its attempts, the oldest first.
type Step struct {
	Name     string
	Attempts []kagzi.StepAttempt
}

// Last returns the newest attempt.
func (s *Step) Last() *kagzi.StepAttempt { return &s.Attempts[len(s.Attempts)-1] }

// Steps collects attempts by their step, in the order of their first attempts.
func Steps(attempts []kagzi.StepAttempt) (steps []*Step) {
	byName := map[string]*Step{}
	for _, a := range attempts {
		s := byName[a.Step]
		if s == nil {
			s = &Step{Name: a.Step}
			byName[a.Step] = s
			steps = append(steps, s)
		}
		s.Attempts = append(s.Attempts, a)
	}
	for _, s := range steps {
		slices.SortStableFunc(s.Attempts, func(a, b kagzi.StepAttempt) int { return cmp.Compare(a.Attempt, b.Attempt) })
	}
	slices.SortStableFunc(steps, func(a, b *Step) int { return start(a).Compare(start(b)) })
	return steps
}

// never is later than all times: a row that has not begun comes last.
var never = time.Unix(1<<40, 0)

// start returns when a step began.
func start(s *Step) time.Time {
	at := never
	for _, a := range s.Attempts {
		if begin := begun(a); !begin.IsZero() {
			at = earlier(at, begin)
		}
	}
	return at
}

// begun returns when an attempt began. A message may have come before it was waited for.
func begun(a kagzi.StepAttempt) time.Time {
	if a.StartedAt.IsZero() {
		return a.EndedAt
	}
	return a.StartedAt
}

// A Row is a line of the timeline: a step, or a group of steps, or both.
type Row struct {
	ID     string // the step's name, or that of the group
	Label  string
	Depth  int
	Step   *Step // nil for a group that is no step
	Group  bool
	Open   bool    // of a group: its steps are rows, too
	Steps  []*Step // of a group: all below it, without its own
	Failed int     // how many of Steps failed
	Active int     // how many of Steps are under way
}

// Options say which rows to show.
type Options struct {
	Open, Fold map[string]bool // groups by their IDs, where they differ from the usual
	All        bool            // open all groups, for steps that were searched
}

const (
	// fewRows is how many rows are shown without folding any group.
	fewRows = 60
	// smallGroup is the size of groups that stay open beyond that.
	smallGroup = 12
	// repeated is how often a name must come again to make a group.
	repeated = 4
)

// Rows returns the rows of the steps: nested by branches, siblings in the order of their starts, repeated names as one
// group.
func Rows(steps []*Step, o Options) (rows []Row) {
	root := &node{}
	for _, s := range steps {
		root.add(s)
	}
	root.tidy()
	few := root.size() <= fewRows
	var walk func(n *node, depth int)
	walk = func(n *node, depth int) {
		for _, c := range n.children {
			row := Row{ID: c.id, Label: c.label, Depth: depth, Step: c.step, Group: len(c.children) > 0}
			if row.Group {
				c.collect(&row)
				row.Open = (o.All || few || len(row.Steps) <= smallGroup || o.Open[c.id]) && !o.Fold[c.id]
			}
			rows = append(rows, row)
			if row.Open {
				walk(c, depth+1)
			}
		}
	}
	walk(root, 0)
	return rows
}

// A node is a step or a part of the path to it.
type node struct {
	id, label string
	step      *Step
	children  []*node
	byPart    map[string]*node
	index     int // of a branch of a Map; -1 for others
	start     time.Time
}

// add adds a step below the nodes of its branches.
func (n *node) add(s *Step) {
	for part := range strings.SplitSeq(s.Name, "/") {
		c := n.byPart[part]
		if c == nil {
			c = &node{id: part, label: part, index: -1}
			if i, err := strconv.Atoi(part); err == nil && i >= 0 {
				c.index = i
			}
			if n.id != "" {
				c.id = n.id + "/" + part
			}
			if n.byPart == nil {
				n.byPart = map[string]*node{}
			}
			n.byPart[part] = c
			n.children = append(n.children, c)
		}
		n = c
	}
	n.step = s
}

// tidy sorts the nodes below, groups those that repeat a name, and joins a branch with its only step.
func (n *node) tidy() {
	n.start = never
	if n.step != nil {
		n.start = start(n.step)
	}
	for i, c := range n.children {
		c.tidy()
		if c.step == nil && len(c.children) == 1 {
			only := *c.children[0]
			only.label, only.index = c.label+"/"+only.label, c.index
			n.children[i] = &only
		}
		n.start = earlier(n.start, n.children[i].start)
	}
	mapped := !slices.ContainsFunc(n.children, func(c *node) bool { return c.index < 0 })
	slices.SortStableFunc(n.children, func(a, b *node) int {
		if mapped { // all of them start at once
			return cmp.Compare(a.index, b.index)
		}
		return a.start.Compare(b.start)
	})
	n.group()
}

// group puts the children that repeat a name into one.
func (n *node) group() {
	times := map[string]int{}
	for _, c := range n.children {
		times[base(c.label)]++
	}
	groups := map[string]*node{}
	var children []*node
	for _, c := range n.children {
		name := base(c.label)
		if times[name] < repeated || len(times) == 1 && times[name] == len(n.children) && n.id != "" {
			children = append(children, c)
			continue
		}
		g := groups[name]
		if g == nil {
			g = &node{id: strings.TrimPrefix(n.id+"/"+name, "/") + "#", label: name, start: c.start, index: -1}
			groups[name] = g
			children = append(children, g)
		}
		g.children = append(g.children, c)
	}
	n.children = children
}

// base returns a name without the number that distinguishes it from others of that name: "charge" for "charge#2".
func base(name string) string {
	if i := strings.LastIndexByte(name, '#'); i > 0 && i < len(name)-1 && strings.Trim(name[i+1:], "0123456789") == "" {
		return name[:i]
	}
	return name
}

// size returns how many rows there are below if all are open.
func (n *node) size() (rows int) {
	for _, c := range n.children {
		rows += 1 + c.size()
	}
	return rows
}

// collect adds the steps below to a row.
func (n *node) collect(row *Row) {
	for _, c := range n.children {
		if c.step != nil {
			row.Steps = append(row.Steps, c.step)
			switch c.step.Last().Status {
			case kagzi.StatusFailed:
				row.Failed++
			case kagzi.StatusRunning, kagzi.StatusPending:
				row.Active++
			}
		}
		c.collect(row)
	}
}

// Status returns the status of a row: for a group, the most notable one of its steps.
func (r Row) Status() kagzi.Status {
	switch {
	case r.Active > 0:
		return kagzi.StatusRunning
	case r.Step != nil:
		return r.Step.Last().Status
	case r.Failed > 0:
		return kagzi.StatusFailed
	}
	for _, s := range r.Steps {
		if s.Last().Status == kagzi.StatusCompleted {
			return kagzi.StatusCompleted
		}
	}
	return kagzi.StatusCancelled
}

// Took returns the sum of the times of all attempts of functions in the row.
func (r Row) Took(now time.Time) (sum time.Duration) {
	for _, s := range r.Steps {
		for _, a := range s.Attempts {
			if span := Of(a, now); a.Type == "FUNCTION" && !span.From.IsZero() {
				sum += span.Len()
			}
		}
	}
	return sum
}

// Of returns the time of an attempt, until now if it is under way; the zero Span if it has not begun.
func Of(a kagzi.StepAttempt, now time.Time) Span {
	from := begun(a)
	to := a.EndedAt
	switch {
	case from.IsZero():
		return Span{}
	case to.IsZero() && (a.Status == kagzi.StatusRunning):
		to = now
	case to.IsZero() || to.Before(from):
		to = from
	}
	return Span{from, later(from, to)}
}

// Within reports whether a step was under way in the window.
func Within(s *Step, window Span, now time.Time) bool {
	return slices.ContainsFunc(s.Attempts, func(a kagzi.StepAttempt) bool {
		span := Of(a, now)
		return !span.From.IsZero() && !span.To.Before(window.From) && !span.From.After(window.To)
	})
}

// Waits reports whether nothing is done during the attempt.
func Waits(a kagzi.StepAttempt) bool { return a.Type == "SLEEP" || a.Type == "SIGNAL" }

// Busy returns the times in which the run's own code was under way.
func Busy(steps []*Step, now time.Time) (spans []Span) {
	for _, s := range steps {
		for _, a := range s.Attempts {
			span := Of(a, now)
			if span.From.IsZero() {
				continue
			}
			switch a.Type {
			case "SLEEP", "SIGNAL", "CHILD_WORKFLOW", "COMPENSATION", "MARKER", "BRANCH":
				// their ends are moments, and not the time between
				spans = append(spans, Span{span.From, span.From}, Span{span.To, span.To})
			default:
				spans = append(spans, span)
			}
		}
	}
	return spans
}

// A Piece is a part of the bar of a folded group: times in which its steps had that status.
type Piece struct {
	X0, X1 float64
	Status kagzi.Status
}

// buckets is how finely the bar of a folded group is drawn.
const buckets = 300

// Pieces returns what the bar of a folded group shows: where its steps were under way, and where some failed.
func Pieces(steps []*Step, s Scale, now time.Time) (pieces []Piece) {
	rank := map[kagzi.Status]int{
		kagzi.StatusCancelled: 1, kagzi.StatusCompleted: 2, kagzi.StatusPending: 3,
		kagzi.StatusRunning: 4, kagzi.StatusFailed: 5,
	}
	var most [buckets]kagzi.Status
	window := s.Window()
	for _, step := range steps {
		for _, a := range step.Attempts {
			span := Of(a, now)
			if span.From.IsZero() || span.To.Before(window.From) || span.From.After(window.To) {
				continue
			}
			first, last := int(s.X(span.From)/100*buckets), int(s.X(span.To)/100*buckets)
			for i := min(first, buckets-1); i <= min(last, buckets-1); i++ {
				if rank[a.Status] > rank[most[i]] {
					most[i] = a.Status
				}
			}
		}
	}
	for i, status := range most {
		x := float64(i) * 100 / buckets
		switch n := len(pieces); {
		case status == "":
		case n > 0 && pieces[n-1].Status == status && pieces[n-1].X1 >= x-1e-6:
			pieces[n-1].X1 = x + 100.0/buckets
		default:
			pieces = append(pieces, Piece{x, x + 100.0/buckets, status})
		}
	}
	return pieces
}

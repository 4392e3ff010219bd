package gantt

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
)

var zero = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return zero.Add(d) }

func span(from, to time.Duration) Span { return Span{at(from), at(to)} }

func TestWorkWithoutGapsIsToScale(t *testing.T) {
	s := NewScale(span(0, 10*time.Second), []Span{span(0, 3*time.Second), span(3500*time.Millisecond, 10*time.Second)})
	if len(s) != 1 || s.Folded() {
		t.Fatalf("%v is folded", s)
	}
	for d, want := range map[time.Duration]float64{
		-time.Second: 0, 0: 0, 5 * time.Second: 50, 10 * time.Second: 100,
		time.Hour: 100,
	} {
		if x := s.X(at(d)); math.Abs(x-want) > 1e-6 {
			t.Errorf("%v is at %v %%, not %v", d, x, want)
		}
	}
}

func TestASleepOfThreeMonthsIsFolded(t *testing.T) {
	month := 30 * day
	s := NewScale(span(0, 3*month+2*time.Second),
		[]Span{span(0, time.Second), span(3*month+time.Second, 3*month+2*time.Second)})
	if len(s) != 3 || !s[1].Folded || s[1].Len() != 3*month || math.Abs(s[1].X1-s[1].X0-foldWidth) > 1e-6 {
		t.Fatalf("%v", s)
	}
	if x := s.X(at(time.Second)); math.Abs(x-47) > 0.01 {
		t.Errorf("the first second ends at %v %%", x)
	}
	if x := s.X(at(3*month + time.Second)); math.Abs(x-53) > 0.01 {
		t.Errorf("the last second begins at %v %%", x)
	}
	if x := Linear(s.Window()).X(at(time.Second)); x > 0.001 {
		t.Errorf("to scale, the first second ends at %v %%", x)
	}
}

func TestGapsOfEveryLengthAreFolded(t *testing.T) {
	busy := []Span{span(0, time.Second), span(2*time.Hour, 2*time.Hour+time.Second), span(90*day, 90*day+time.Second)}
	s := NewScale(span(0, 90*day+time.Second), busy)
	if folds := strings.Count(fmt.Sprint(s), "true"); folds != 2 {
		t.Errorf("%d gaps are folded: %v", folds, s)
	}
	for _, b := range busy {
		if w := s.X(b.To) - s.X(b.From); w < 20 {
			t.Errorf("a second of work is %v %% wide", w)
		}
	}
	if s := NewScale(span(0, 90*day+time.Second), []Span{
		span(0, time.Second), span(45*day, 45*day),
		span(90*day, 90*day+time.Second),
	}); len(s) != 3 {
		t.Errorf("two gaps that touch are no single fold: %v", s)
	}
	busy = nil
	for h := range 24 { // one second in each hour
		busy = append(busy, span(time.Duration(h)*time.Hour, time.Duration(h)*time.Hour+time.Second))
	}
	s = NewScale(span(0, 24*time.Hour), busy)
	if w := s.X(busy[5].To) - s.X(busy[5].From); w < 1 {
		t.Errorf("a second of work among many is %v %% wide", w)
	}
}

func TestSmallGapsAndEmptyWindowsAreNotFolded(t *testing.T) {
	for name, s := range map[string]Scale{
		"a third is idle": NewScale(span(0, 3*time.Second),
			[]Span{span(0, time.Second), span(2*time.Second, 3*time.Second)}),
		"nothing is under way": NewScale(span(0, time.Hour), nil),
		"a run of milliseconds": NewScale(span(0, 100*time.Millisecond),
			[]Span{span(0, time.Millisecond), span(99*time.Millisecond, 100*time.Millisecond)}),
		"moments": NewScale(span(0, time.Hour), []Span{span(0, 0), span(time.Hour, time.Hour)}),
	} {
		if s.Folded() || len(s) != 1 || s[0].X1 != 100 {
			t.Errorf("%s: %v", name, s)
		}
	}
	if s := NewScale(span(0, 0), nil); s.X(zero) != 0 || s.X(at(time.Second)) > 100 {
		t.Errorf("an empty window: %v", s)
	}
	var many []Span // more gaps than can be folded
	for i := range 3 * mostFolds {
		many = append(many, span(time.Duration(i)*time.Hour, time.Duration(i)*time.Hour))
	}
	if s := NewScale(span(0, 3*mostFolds*time.Hour), many); s.Folded() {
		t.Errorf("%d segments", len(s))
	}
}

func TestTimeIsTheInverseOfX(t *testing.T) {
	s := NewScale(span(0, 90*day), []Span{span(0, time.Minute), span(89*day, 90*day)})
	if !s.Folded() {
		s = Scale{
			{span(0, time.Minute), 0, 40, false},
			{span(time.Minute, 89*day), 40, 46, true},
			{span(89*day, 90*day), 46, 100, false},
		}
	}
	for _, d := range []time.Duration{0, 30 * time.Second, time.Minute, 40 * day, 89*day + time.Hour, 90 * day} {
		if back := s.Time(s.X(at(d))); back.Sub(at(d)).Abs() > time.Second {
			t.Errorf("%v comes back as %v", d, back.Sub(zero))
		}
	}
}

func TestZoom(t *testing.T) {
	whole := span(0, 100*time.Second)
	s := Linear(whole)
	for name, c := range map[string]struct{ got, want Span }{
		"in":  {s.Zoom(25, 75, whole), span(25*time.Second, 75*time.Second)},
		"out": {s.Zoom(-50, 150, whole), whole},
		"out of a part": {
			Linear(span(40*time.Second, 50*time.Second)).Zoom(-50, 150, whole),
			span(35*time.Second, 55*time.Second),
		},
		"left": {
			Linear(span(40*time.Second, 50*time.Second)).Zoom(-50, 50, whole),
			span(35*time.Second, 45*time.Second),
		},
		"beyond the left end": {Linear(span(0, 50*time.Second)).Zoom(-50, 50, whole), span(0, 50*time.Second)},
		"beyond the right": {
			Linear(span(50*time.Second, 100*time.Second)).Zoom(50, 150, whole),
			span(50*time.Second, 100*time.Second),
		},
	} {
		if c.got != c.want {
			t.Errorf("%s: %v to %v", name, c.got.From.Sub(zero), c.got.To.Sub(zero))
		}
	}
	w := whole
	for range 100 {
		w = Linear(w).Zoom(49, 51, whole)
	}
	if w.Len() != shortest {
		t.Errorf("the narrowest window is %v", w.Len())
	}
	if w := Clamp(span(time.Hour, 2*time.Hour), whole); w.Len() > whole.Len() || w.To.After(whole.To) ||
		w.From.Before(whole.From) {
		t.Errorf("a window outside of the run: %v", w)
	}
}

func TestTicks(t *testing.T) {
	for _, length := range []time.Duration{
		20 * time.Microsecond, time.Millisecond, 7 * time.Second, 3 * time.Minute,
		5 * time.Hour, 40 * day, 3000 * day, 40000 * day,
	} {
		ticks := Linear(span(0, length)).Ticks()
		if len(ticks) < 2 || len(ticks) > 11 {
			t.Errorf("%v has %d ticks", length, len(ticks))
		}
		for i, tick := range ticks {
			if i > 0 && tick.X-ticks[i-1].X < tickRoom-1 || tick.X > 100-tickRoom {
				t.Errorf("%v: tick %d is at %v %%", length, i, tick.X)
			}
		}
	}
	s := NewScale(span(0, 90*day), []Span{span(0, time.Second), span(90*day-time.Second, 90*day)})
	for _, tick := range s.Ticks() {
		if tick.X > s[1].X0+0.01 && tick.X < s[1].X1-0.01 {
			t.Error("a fold has a tick")
		}
	}
}

// attempt makes an attempt of a function.
func attempt(step string, n int, from, to time.Duration, status kagzi.Status) kagzi.StepAttempt {
	a := kagzi.StepAttempt{Step: step, Type: "FUNCTION", Attempt: n, Status: status, StartedAt: at(from)}
	if status != kagzi.StatusRunning {
		a.EndedAt = at(to)
	}
	return a
}

func labels(rows []Row) string {
	var out []string
	for _, r := range rows {
		text := strings.Repeat(">", r.Depth) + r.Label
		if r.Group {
			text += fmt.Sprintf("(%d)", len(r.Steps))
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

func TestRowsAreNestedByBranch(t *testing.T) {
	var a []kagzi.StepAttempt
	for i, name := range []string{
		"#patched:x", "authorize", "parts/b/pay", "parts/a/book", "parts/a/confirm", "parts",
		"charge", "charge#2", "ship", "ship/#cancel", "flight#compensation",
	} {
		a = append(a, attempt(name, 1, time.Duration(i)*time.Second, time.Duration(i+1)*time.Second,
			kagzi.StatusCompleted))
	}
	want := "#patched:x authorize parts(3) >b/pay >a(2) >>book >>confirm charge charge#2 ship(1) >#cancel " +
		"flight#compensation"
	if got := labels(Rows(Steps(a), Options{})); got != want {
		t.Errorf("the rows are\n%s, not\n%s", got, want)
	}
}

func TestRepeatedNamesAreOneRow(t *testing.T) {
	var a []kagzi.StepAttempt
	for i := range 1000 {
		name := "poll"
		if i > 0 {
			name = fmt.Sprintf("poll#%d", i+1)
		}
		status := kagzi.StatusCompleted
		if i%100 == 7 {
			status = kagzi.StatusFailed
		}
		a = append(a, attempt(name, 1, time.Duration(i)*time.Second, time.Duration(i+1)*time.Second, status),
			attempt(fmt.Sprintf("pages/%d/fetch", i), 1, time.Duration(i)*time.Second, time.Duration(i+1)*time.Second,
				kagzi.StatusCompleted),
			attempt(fmt.Sprintf("pages/%d/store", i), 1, time.Duration(i)*time.Second, time.Duration(i+1)*time.Second,
				kagzi.StatusCompleted))
	}
	a = append(a, attempt("end", 1, time.Hour, time.Hour, kagzi.StatusCompleted))
	steps := Steps(a)
	rows := Rows(steps, Options{})
	if got := labels(rows); got != "poll(1000) pages(2000) end" {
		t.Fatalf("the rows are %.200s", got)
	}
	if rows[0].Failed != 10 || rows[0].Status() != kagzi.StatusFailed || rows[0].Took(zero) != 1000*time.Second ||
		rows[0].Open {
		t.Errorf("poll: %d failed, %s, %v", rows[0].Failed, rows[0].Status(), rows[0].Took(zero))
	}
	if n := len(Rows(steps, Options{Open: map[string]bool{"poll#": true}})); n != 1003 {
		t.Errorf("with poll open there are %d rows", n)
	}
	if got := labels(Rows(steps, Options{Open: map[string]bool{"pages": true}}))[:60]; !strings.Contains(got,
		">0(2) >>fetch >>store >1(2)") {
		t.Errorf("with pages open: %s", got)
	}
	if n := len(Rows(steps, Options{All: true, Fold: map[string]bool{"pages": true}})); n != 1003 {
		t.Errorf("with pages folded there are %d rows", n)
	}
	pieces := Pieces(rows[0].Steps, Linear(span(0, 1000*time.Second)), zero)
	if len(pieces) < 19 || len(pieces) > buckets || pieces[0].X0 != 0 {
		t.Errorf("%d pieces: %v", len(pieces), pieces[0])
	}
	if few := Pieces(rows[0].Steps, Linear(span(0, 10_000*time.Hour)), zero); len(few) != 1 ||
		few[0].Status != kagzi.StatusFailed {
		t.Errorf("seen from afar there are %d pieces", len(few))
	}
}

func TestAttemptsOfAStep(t *testing.T) {
	now := at(time.Hour)
	steps := Steps([]kagzi.StepAttempt{
		attempt("b", 2, 5*time.Second, 0, kagzi.StatusRunning), attempt("b", 1, 0, time.Second, kagzi.StatusFailed),
		attempt("a", 1, time.Second, 2*time.Second, kagzi.StatusCompleted),
		{Step: "undo", Type: "COMPENSATION", Attempt: 1, Status: kagzi.StatusPending},
		{
			Step: "approved", Type: "SIGNAL", Attempt: 1, Status: kagzi.StatusCompleted, StartedAt: at(9 * time.Second),
			EndedAt: at(3 * time.Second),
		},
	})
	if steps[0].Name != "b" || steps[0].Last().Attempt != 2 || steps[3].Name != "undo" {
		t.Fatalf("the steps are %v", labels(Rows(steps, Options{})))
	}
	for i, want := range map[int]Span{
		0: {at(5 * time.Second), now}, 1: span(time.Second, 2*time.Second),
		2: span(9*time.Second, 9*time.Second), 3: {},
	} {
		if got := Of(*steps[i].Last(), now); got != want {
			t.Errorf("%s is from %v to %v", steps[i].Name, got.From, got.To)
		}
	}
	if rows := Rows(steps, Options{}); rows[0].Status() != kagzi.StatusRunning {
		t.Errorf("b is %s", rows[0].Status())
	}
}

func TestHostileNamesMakeRows(t *testing.T) {
	for _, name := range []string{"", "/", "//a", "a//b", "#", "#1", "a#", "a/#2", "a#2#3", strings.Repeat("x/", 200)} {
		var a []kagzi.StepAttempt
		for i := range 5 {
			a = append(a, attempt(name+strings.Repeat("x", i), 1, 0, 0, kagzi.StatusCompleted))
		}
		rows := Rows(Steps(a), Options{All: true})
		n := 0
		for _, r := range rows {
			if r.Step != nil {
				n++
			}
		}
		if n != 5 {
			t.Errorf("%.20q: %d of 5 steps have a row: %s", name, n, labels(rows))
		}
	}
}

package check_test

import (
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi/chaos/internal/check"
	"github.com/kagzi/kagzi/chaos/internal/evidence"
)

func TestExercised(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(e *evidence.Evidence)
		want   string
	}{
		{"NoEffect", func(e *evidence.Evidence) { e.Injected[0].Effect = 0 }, "had no effect"},
		{"NotInjected", func(e *evidence.Evidence) { e.Injected[0].Err = "no such server" }, "no such server"},
		{"NothingCompleted", func(e *evidence.Evidence) { e.Healed = e.Over }, "no run completed after the last fault"},
		{"NoTakeover", func(e *evidence.Evidence) {
			for i := range e.Changes {
				if c := &e.Changes[i]; c.Run == "taken over" && c.NewStatus == "" {
					c.New = []byte(strings.ReplaceAll(string(c.New), `"lease":"T2"`, `"lease":"T1"`))
				}
			}
		}, "no run was taken over"},
		{"NoLedger", func(e *evidence.Evidence) { e.Ledger = nil }, "evidence is missing"},
		{
			"Stalled", func(e *evidence.Evidence) { e.Samples[1].At = e.Samples[0].At + time.Minute },
			"the machine stalled",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := good().end()
			tt.change(e)
			if got := check.Exercised(e, check.Measure(e)); len(got) != 1 || !strings.Contains(got[0], tt.want) {
				t.Errorf("reasons: %q, want %q", got, tt.want)
			}
		})
	}
}

// A fault without an effect is told, and does not spoil the round while more faults had one.
func TestIdle(t *testing.T) {
	t.Parallel()
	e := good().end()
	first := e.Injected[0]
	idle := evidence.Injected{Fault: "F9 in vain", Began: e.Over + time.Second, Ended: e.Over + 2*time.Second}
	e.Injected = []evidence.Injected{first, first, idle}
	texts, worked := check.Idle(e)
	if want := `fault "F9 in vain" had no effect`; worked != 2 || len(texts) != 1 || texts[0] != want {
		t.Errorf("%d faults worked, the others: %q, want 2, and %q", worked, texts, want)
	}
	if got := check.Exercised(e, check.Measure(e)); len(got) > 0 {
		t.Errorf("reasons: %q", got)
	}
	e.Injected = e.Injected[1:]
	if got := check.Exercised(e, check.Measure(e)); len(got) != 1 {
		t.Errorf("one fault of two had no effect, reasons: %q", got)
	}
}

func TestMeasure(t *testing.T) {
	t.Parallel()
	w := good()
	w.line("1.1", evidence.Refused, "", "", 0, "", "record")
	f := check.Measure(w.end())
	if f.TakenOver != 1 || f.Refused != 1 || f.Repeated != 3 || len(f.KillToClaim) != 1 {
		t.Errorf("figures: %+v", f)
	}
	if took := f.KillToClaim[0]; took != 20*time.Millisecond {
		t.Errorf("the dead worker's run was taken over after %v, want 20 ms: it is released before", took)
	}
	if f.Runs != len(w.Runs) || f.Ended != f.Runs || f.HealedToEnd <= 0 {
		t.Errorf("figures: %+v of %d runs", f, len(w.Runs))
	}
	if f.Watched < 2*time.Second || f.Judged != f.Watched {
		t.Errorf("liveness was judged in %v of %v", f.Judged, f.Watched)
	}
	if text := f.String(); !strings.Contains(text, "from a worker's death to the next claim: 1, median 20ms") {
		t.Error(text)
	}
}

// A timeline has everything that is known of the run, in its order, and nothing of others.
func TestTimeline(t *testing.T) {
	t.Parallel()
	e := good().end()
	at := 0
	died := e.Exits[0].At + time.Millisecond
	text := check.Timeline(e, "taken over", check.Violation{
		Invariant: "S6", Run: "retries", What: "not here",
		At: died,
	}, check.Violation{Invariant: "L5", Run: "taken over", What: "nobody had taken it over", At: died})
	for _, part := range []string{
		"fault       F1 kill begins",
		"client 1    calls start",
		`by "driver" INSERT run: available_at`,
		"client 1    start ok",
		`by "1.1" UPDATE run: available_at`, `lease "T1"`, `status "RUNNING"`,
		"worker 1.1   BEGIN second attempt 1 under T1",
		">>>         L5: nobody had taken it over",
		`by "2.1" UPDATE run: available_at`, `lease "T2"`,
		"worker 2.1   END second attempt 1 under T2 two",
		`INSERT step second attempt 1`, `status "COMPLETED"`,
		`available_at null`,
	} {
		i := strings.Index(text[at:], part)
		if i < 0 {
			t.Fatalf("%q is not in the timeline, or not in its place:\n%s", part, text)
		}
		at += i
	}
	if strings.Contains(text, "retries") || strings.Contains(text, "S6") ||
		strings.Contains(text, "workflow_type \"program\", workflow_type") {
		t.Errorf("the timeline tells of another run:\n%s", text)
	}
	if got := check.Timeline(good().end(), "x"); got != "nothing is known of run x\n" {
		t.Error(got)
	}
}

// The timeline of a run that waits for an event has the publications of that.
func TestTimelineOfAWait(t *testing.T) {
	t.Parallel()
	e := good().end()
	for run, want := range map[string]int{"hears": 2, "reads": 0} {
		if got := strings.Count(check.Timeline(e, run), "publish ok"); got != want {
			t.Errorf("%s: %d publications, want %d", run, got, want)
		}
	}
}

func TestTicks(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 3, 1, 11, 59, 57, 500, time.UTC) // a Sunday
	tests := []struct {
		timetable check.Timetable
		seconds   int
		want      string
	}{
		{check.Timetable{Cron: "* * * * * *"}, 3, "11:59:58 11:59:59 12:00:00"},
		{check.Timetable{Cron: "*/20 * * * * *"}, 60, "12:00:00 12:00:20 12:00:40"},
		{check.Timetable{Cron: "5,10-12/2 0 12 * 3 0"}, 60, "12:00:05 12:00:10 12:00:12"},
		{check.Timetable{Cron: "0 0 12 2 * 1"}, 60, ""},
		{check.Timetable{Cron: "0 0 12 2 * 0"}, 60, "12:00:00"},
		{check.Timetable{Cron: "0 0 12 * * 1"}, 60, ""},
		{
			check.Timetable{Every: 7 * time.Second, Start: time.Date(2026, 3, 1, 12, 0, 1, 0, time.UTC)},
			14,
			"12:00:01 12:00:08",
		},
		{check.Timetable{Every: 30 * time.Second}, 60, "12:00:00 12:00:30"},
	}
	for _, tt := range tests {
		ticks, err := check.Ticks(tt.timetable, from, from.Add(time.Duration(tt.seconds)*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, tick := range ticks {
			got = append(got, tick.At.Format("15:04:05"))
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%+v: %q, want %q", tt.timetable, got, tt.want)
		}
	}
	for _, cron := range []string{"* * * * *", "x * * * * *", "*/0 * * * * *", "1-x * * * * *"} {
		if _, err := check.Ticks(check.Timetable{Cron: cron}, from, from); err == nil {
			t.Errorf("%q is accepted", cron)
		}
	}
	ticks, err := check.Ticks(check.Timetable{Schedule: "s", Every: time.Second, Overlap: "skip"}, from,
		from.Add(time.Second))
	if err != nil || len(ticks) != 1 || ticks[0].May != "fire or skip" || ticks[0].Schedule != "s" {
		t.Errorf("%+v, %v", ticks, err)
	}
}

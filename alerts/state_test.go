package alerts

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/topic"
)

func checks(all ...string) (out []health.Check) {
	for _, s := range all {
		name, status, _ := strings.Cut(s, " ")
		out = append(out, health.Check{Name: name, Status: health.Status(status), Detail: s})
	}
	return out
}

// An alert opens once a check has been bad for a minute, and closes once it has been well for a minute.
func TestWhenAlertsOpenAndClose(t *testing.T) {
	t.Parallel()
	order := []failed{{Workflow: "order", Kind: kind.Timeout, Runs: 2, Last: "order-7"}}
	began := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	type step struct {
		after  time.Duration // since the first look
		checks []health.Check
		failed []failed
		want   []string
	}
	for name, steps := range map[string][]step{
		"ShortTrouble": {
			{0, checks("queues degraded"), nil, nil},
			{59 * time.Second, nil, nil, nil},
			{60 * time.Second, checks("queues degraded"), nil, nil}, // another one
			{119 * time.Second, checks("queues degraded"), nil, nil},
		},
		"OpensAndCloses": {
			{0, checks("queues degraded"), nil, nil},
			{60 * time.Second, checks("queues degraded"), nil, []string{"+queues/degraded"}},
			{90 * time.Second, checks("queues degraded"), nil, nil},
			{100 * time.Second, nil, nil, nil},
			{159 * time.Second, nil, nil, nil},
			{160 * time.Second, nil, nil, []string{"-queues/degraded"}},
			{300 * time.Second, nil, nil, nil},
		},
		"WellForAMoment": {
			{0, checks("queues degraded"), nil, nil},
			{60 * time.Second, checks("queues degraded"), nil, []string{"+queues/degraded"}},
			{70 * time.Second, nil, nil, nil},
			{100 * time.Second, checks("queues degraded"), nil, nil},
			{140 * time.Second, nil, nil, nil},
			{199 * time.Second, nil, nil, nil},
			{200 * time.Second, nil, nil, []string{"-queues/degraded"}},
		},
		"GetsWorseAndBetter": {
			{0, checks("workers degraded"), nil, nil},
			{60 * time.Second, checks("workers unhealthy"), nil, []string{"+workers/degraded"}},
			{120 * time.Second, checks("workers unhealthy"), nil, []string{"+workers/unhealthy"}},
			{130 * time.Second, checks("workers degraded"), nil, nil},
			{190 * time.Second, checks("workers degraded"), nil, []string{"-workers/unhealthy"}},
		},
		"BeginsAsUnhealthy": { // one alert, and not two
			{0, checks("workers unhealthy"), nil, nil},
			{60 * time.Second, checks("workers unhealthy"), nil, []string{"+workers/unhealthy"}},
			{120 * time.Second, nil, nil, nil},
			{180 * time.Second, nil, nil, []string{"-workers/unhealthy"}},
		},
		"NothingLookedForHours": {
			{0, checks("queues degraded"), nil, nil},
			{8 * time.Hour, checks("queues degraded"), nil, nil},
			{8*time.Hour + time.Minute, checks("queues degraded"), nil, []string{"+queues/degraded"}},
		},
		"ClockThatWasAhead": {
			{24 * time.Hour, checks("queues degraded"), nil, nil},
			{0, checks("queues degraded"), nil, nil},
			{time.Minute, checks("queues degraded"), nil, []string{"+queues/degraded"}},
		},
		"Several": {
			{0, checks("queues degraded", "pool degraded"), nil, nil},
			{
				time.Minute, checks("queues degraded", "pool degraded"), nil,
				[]string{"+pool/degraded", "+queues/degraded"},
			},
		},
		"RunsFail": {
			{0, nil, nil, nil},
			{time.Second, nil, order, []string{"+runs/order: timeout"}},
			{30 * time.Minute, nil, order, nil},
			{89 * time.Minute, nil, nil, nil},
			{90 * time.Minute, nil, nil, []string{"-runs/order: timeout"}},
			{91 * time.Minute, nil, order, []string{"+runs/order: timeout"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, err := Config{Notifiers: map[string]Notifier{"log": Slog{}}, Every: time.Minute}.validated()
			if err != nil {
				t.Fatal(err)
			}
			s := state{}
			keys := map[string]bool{}
			for _, step := range steps {
				var changed []Alert
				s, changed = s.learn(look{At: began.Add(step.after), Checks: step.checks, Failed: step.failed}, cfg)
				var got []string
				for _, a := range changed {
					if keys[a.Key] {
						t.Errorf("%s came twice", a.Key)
					}
					keys[a.Key] = true
					got = append(got, map[bool]string{false: "+", true: "-"}[a.Closed]+a.ID)
				}
				if !slices.Equal(got, step.want) {
					t.Errorf("after %v: %v, want %v", step.after, got, step.want)
				}
			}
		})
	}
}

func TestTextOfAnAlert(t *testing.T) {
	t.Parallel()
	cfg, _ := Config{Notifiers: map[string]Notifier{"log": Slog{}}, For: shortest, Quiet: time.Minute}.validated()
	began := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	found := look{
		Checks: checks("queues degraded"),
		Failed: []failed{{Workflow: "order", Kind: kind.Timeout, Runs: 2, Last: "order-7"}},
	}
	s := state{}
	var got []string
	for i, l := range []look{found, found, {}, {}} {
		l.At = began.Add(time.Duration(i) * time.Minute)
		var changed []Alert
		s, changed = s.learn(l, cfg)
		for _, a := range changed {
			got = append(got, fmt.Sprintf("%s | %s | since %s", a.Title, a.Detail, a.Since.Format("15:04")))
		}
	}
	want := []string{
		`Runs fail: order: timeout | The last of them is "order-7". | since 12:00`,
		"Check queues: degraded | queues degraded | since 12:00",
		`Runs no longer fail: order: timeout | 4 had failed. The last of them is "order-7". | since 12:00`,
		"Check queues: no longer degraded | queues degraded | since 12:00",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Several checks of one name are one, as bad as the worst of them.
func TestChecksOfOneName(t *testing.T) {
	t.Parallel()
	all := checks("keys degraded", "pool healthy", "queues degraded", "keys unhealthy", "pauses degraded")
	got := bad(health.Report{Checks: all}, func(name string) bool { return name != "pauses" })
	want := []health.Check{
		{Name: "keys", Status: health.Unhealthy, Detail: "keys degraded\nkeys unhealthy"},
		{Name: "queues", Status: health.Degraded, Detail: "queues degraded"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	many := bad(health.Report{Checks: slices.Repeat(checks("keys degraded"), 500)}, func(string) bool { return true })
	if lines := strings.Split(many[0].Detail, "\n"); len(lines) != 11 || lines[10] != "and 490 more" {
		t.Errorf("the detail of 500 checks is %q", lines)
	}
}

// Names and kinds are the application's. They make IDs that can be stored, and that differ.
func TestNamesOfFailures(t *testing.T) {
	t.Parallel()
	for want, f := range map[string]failed{
		"order: timeout":    {Workflow: "order", Kind: kind.Timeout},
		"order: a b":        {Workflow: "order", Kind: "a\nb"},
		"order: ??":         {Workflow: "order", Kind: "?\xff"},
		`"order: eu": late`: {Workflow: "order: eu", Kind: "late"},
		"order: eu: late":   {Workflow: "order", Kind: "eu: late"},
	} {
		if got := f.of(); got != want {
			t.Errorf("%q: %q of %q is %q", want, f.Kind, f.Workflow, got)
		}
	}
}

// Failures count from the first look that counts them.
func TestRunsThatAreWatchedLater(t *testing.T) {
	t.Parallel()
	cfg, err := Config{Notifiers: map[string]Notifier{"log": Slog{}}}.validated()
	if err != nil {
		t.Fatal(err)
	}
	s, _ := state{}.learn(look{At: time.Unix(1000, 0)}, cfg)
	if !s.RunsSince.IsZero() {
		t.Errorf("without Runs they are watched since %v", s.RunsSince)
	}
	cfg.Runs = true
	for range 2 {
		s, _ = s.learn(look{At: time.Unix(2000, 0)}, cfg)
	}
	if !s.RunsSince.Equal(time.Unix(2000, 0)) {
		t.Errorf("they are watched since %v", s.RunsSince)
	}
}

func TestFailuresOfAnyRun(t *testing.T) {
	t.Parallel()
	var f failures
	for _, e := range []topic.RunEvent{
		{Workflow: "order", Status: kagzi.StatusPending, Run: "1"},
		{Workflow: "order", Status: kagzi.StatusFailed, Kind: kind.Timeout, Run: "1", ID: "a"},
		{Workflow: "order", Status: kagzi.StatusCompleted, Run: "2"},
		{Workflow: "order", Status: kagzi.StatusCancelled, Run: "3", Kind: kind.Cancelled},
		{Workflow: "mail", Status: kagzi.StatusFailed, Kind: kind.Timeout, Run: "4"},
		{Workflow: "order", Status: kagzi.StatusFailed, Kind: kind.Timeout, Run: "5"},
	} {
		f.add(e)
	}
	want := []failed{
		{Workflow: "order", Kind: kind.Timeout, Runs: 2, Last: "5"},
		{Workflow: "mail", Kind: kind.Timeout, Runs: 1, Last: "4"},
	}
	if got := f.all(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Thousands of troubles at once fit into the input of a run, and open their alerts in several looks.
func TestBoundsOfAState(t *testing.T) {
	t.Parallel()
	cfg, err := Config{Notifiers: map[string]Notifier{"log": Slog{}}}.validated()
	if err != nil {
		t.Fatal(err)
	}
	l := look{Checks: []health.Check{
		{Name: "keys", Status: health.Unhealthy, Detail: strings.Repeat("ä", 1<<20)},
	}}
	for i := range 3000 {
		l.Failed = append(l.Failed, failed{Workflow: strings.Repeat("w", 250) + strconv.Itoa(i), Last: "r", Runs: 1})
	}
	s, opened := state{}, map[string]bool{}
	for i := range 10 {
		l.At = time.Unix(int64(i)*60, 0)
		var changed []Alert
		s, changed = s.learn(l, cfg)
		if len(changed) > mostChanges {
			t.Errorf("a look changes %d alerts", len(changed))
		}
		for _, a := range changed {
			if opened[a.ID] {
				t.Errorf("%s opened twice", a.ID)
			}
			opened[a.ID] = true
		}
		data, err := json.Marshal(plan{Next: s, Messages: slices.Repeat([]message{{Alert: sample()}}, 3*mostChanges)})
		if err != nil || len(data) > 2<<20 {
			t.Errorf("a plan has %d bytes, %v", len(data), err)
		}
	}
	if len(opened) != mostTroubles {
		t.Errorf("%d alerts opened", len(opened))
	}
}

package explain_test

import (
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/explain"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/waits"
)

func TestDeleted(t *testing.T) {
	k := kit.New(t)
	run := kit.Begin(k, checkout, "x", kagzi.ID("order-1"))
	says := func(ref kagzi.Ref, w explain.Words) string {
		t.Helper()
		text, err := explain.Deleted(k.Ctx, k.Client, ref, w)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	k.Cancel(run)
	for _, ref := range []kagzi.Ref{
		run.ID(), kagzi.ID("order-1"), kagzi.ID("nobody"),
		kagzi.RunID("01987654-0000-7000-8000-000000000000"),
	} {
		if text := says(ref, words); text != "" {
			t.Errorf("%v is not deleted, and it says %s", ref, text)
		}
	}
	if err := admin.New(k.Client).Runs.Delete(k.Ctx, run, kagzi.Actor("mira"),
		kagzi.Reason("asked to forget")); err != nil {
		t.Fatal(err)
	}
	if text := says(kagzi.ID("order-1"), words); !strings.HasPrefix(text, "it was deleted 20") ||
		!strings.HasSuffix(text, `Z by mira ("asked to forget"): <log order-1> shows what it was`) {
		t.Error(text)
	}
	if text := says(run.ID(), explain.Words{}); !strings.HasSuffix(text, `Z by mira ("asked to forget")`) {
		t.Error(text)
	}
}

func TestDetail(t *testing.T) {
	for want, run := range map[string]kagzi.RunInfo{
		"panic: broken; again": {Status: kagzi.StatusFailed, Kind: "panic", Error: "kagzi: broken\n\n again"},
		"cancelled":            {Status: kagzi.StatusCancelled, Kind: "cancelled"},
		"":                     {Status: kagzi.StatusCompleted, WaitingOn: waits.List{{Kind: waits.Deletion}}},
		"paused; signal approved": {
			Status: kagzi.StatusSleeping, PausedAt: earlier, WaitingOn: waits.List{waits.Parse("signal approved")},
		},
		"paused": {Status: kagzi.StatusSleeping, PausedAt: earlier, WaitingOn: waits.List{{Kind: waits.Pause}}},
		"signal approved": {
			Status: kagzi.StatusSleeping, WaitingOn: waits.List{waits.Parse("signal approved")},
			Progress: &kagzi.Progress{Text: "half"},
		},
		"its worker is silent": {
			Status: kagzi.StatusRunning, SilentSince: earlier,
			Progress: &kagzi.Progress{Text: "half"},
		},
		"half": {Status: kagzi.StatusRunning, Progress: &kagzi.Progress{Text: "half"}},
	} {
		if text := explain.Detail(run); text != want {
			t.Errorf("it says %q, want %q", text, want)
		}
	}
}

func TestSilent(t *testing.T) {
	for want, run := range map[string]kagzi.RunInfo{
		"": {Status: kagzi.StatusRunning, AvailableAt: later},
		"its worker last reported 2026-10-01T07:00:00Z; another one takes it over 2026-10-01T10:00:00Z at " +
			"the latest": {Status: kagzi.StatusRunning, SilentSince: earlier, AvailableAt: later},
		"its worker last reported 2026-10-01T07:00:00Z; the next one with a free slot takes " +
			"it over": {Status: kagzi.StatusRunning, SilentSince: earlier, AvailableAt: earlier},
	} {
		if text := explain.Silent(run, words); text != want {
			t.Errorf("it says %q, want %q", text, want)
		}
	}
}

func TestNames(t *testing.T) {
	for want, target := range map[string]admin.Target{
		"all runs":              {All: true},
		"group g":               {Group: "g"},
		"key k of queue q":      {Queue: "q", Key: "k"},
		"workflow w in queue q": {Queue: "q", Workflow: "w"},
		"queue q":               {Queue: "q"},
		"workflow w":            {Workflow: "w"},
	} {
		if text := explain.Target(target); text != want {
			t.Errorf("it is %q, want %q", text, want)
		}
	}
	for want, rate := range map[string]admin.Rate{
		"10/s":         {Starts: 10},
		"3/s":          {Starts: 1, Per: 333334 * time.Microsecond}, // as it is stored
		"5/7s burst 9": {Starts: 5, Per: 7 * time.Second, Burst: 9},
	} {
		if text := explain.Rate(rate, time.Duration.String); text != want {
			t.Errorf("it is %q, want %q", text, want)
		}
	}
	for want, by := range map[string][2]string{
		"": {}, " by ada": {"ada"}, ` ("late")`: {"", "late"},
		` by ada ("so \"late\"")`: {"ada", `so "late"`},
	} {
		if text := explain.By(by[0], by[1]); text != want {
			t.Errorf("it is %q, want %q", text, want)
		}
	}
}

package ui

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
)

// The pages of schedules say who paused one, and why.
func TestWhoPausedASchedule(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{Authorize: everybody})
	if err := k.Client.Schedule(k.Ctx, kagzi.Schedule{
		Name: "nightly", Every: time.Hour,
		Run: echo.With("x"),
	}); err != nil {
		t.Fatal(err)
	}
	if r := s.do(http.MethodPost, "/schedules/nightly/pause", "reason=a+<move>", "Sec-Fetch-Site",
		"same-origin"); r.StatusCode != http.StatusSeeOther {
		t.Fatal(r.Status, r.body)
	}
	for _, path := range []string{"/schedules", "/schedules/nightly"} {
		if page := s.mustGet(path); !strings.Contains(page, "by mira") || !strings.Contains(page, "a &lt;move&gt;") {
			t.Errorf("%s does not say who paused it", path)
		}
	}
}

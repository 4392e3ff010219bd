package test

import (
	"strings"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/ui"
)

// Each page names the zone of its times, and has how long ago they are beside them. A button changes to UTC and back,
// for all pages.
func TestTimesInUTC(t *testing.T) {
	k, tb := begin(t, ui.Config{})
	kit.Begin(k, idle, "x", kagzi.ID("order-42"))
	tb.open("/runs/order-42")
	const started = `[...document.querySelectorAll("#facts div")].find((d) => d.innerText.startsWith("Started"))` +
		`.querySelector("time")`
	is := func(zone, named string) {
		t.Helper()
		tb.until(`document.querySelector("[data-zone-toggle] span:last-child").innerText === ` + quote(zone))
		if text := eval[string](tb, started+`.innerText`); !strings.HasSuffix(text, " "+zone) {
			t.Errorf("the run was started %q, not in %s", text, zone)
		}
		if text := tb.text("footer [data-zone]"); text != named {
			t.Errorf("the zone is %q, not %q", text, named)
		}
		if ago := eval[string](tb, `getComputedStyle(`+started+`, "::after").content`); !strings.Contains(ago, " ago") {
			t.Errorf("beside the time stands %s", ago)
		}
	}
	berlin := eval[string](tb, `new Intl.DateTimeFormat(undefined, { timeZoneName: "short" })`+
		`.formatToParts().find((p) => p.type === "timeZoneName").value`)
	is(berlin, "Europe/Berlin ("+berlin+")")
	tb.click("[data-zone-toggle]")
	is("UTC", "UTC")
	tb.open("/runs/order-42")
	is("UTC", "UTC")
	tb.open("/schedules")
	if text := tb.text("footer [data-zone]"); text != "UTC" {
		t.Errorf("another page is in %s", text)
	}
	tb.click("[data-zone-toggle]")
	tb.open("/runs/order-42")
	is(berlin, "Europe/Berlin ("+berlin+")")
}

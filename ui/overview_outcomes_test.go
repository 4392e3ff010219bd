package ui

import (
	"html"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/ui/internal/web"
)

// ended inserts runs that were started so long ago and have ended a second later.
func ended(k *kit.Kit, status, ago string, n int) {
	k.T.Helper()
	k.Exec(`INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, status, created_at,
			finished_at)
		SELECT (lpad(to_hex((extract(epoch FROM c.at) * 1000)::bigint), 12,
			'0') || '7' || substr(md5(g::text || $1 || $2), 1, 3) || '8' || substr(md5(g::text || $1 || $2), 4,
			15))::uuid, 'default', 'default', 'echo', $1, c.at, c.at + interval '1 second'
		FROM generate_series(1, $3::int) AS g
		CROSS JOIN LATERAL (SELECT now() - $2::interval AS at) c`, status, ago, n)
}

// outcomesOf returns the part of the overview that shows what became of the runs of the last days.
func outcomesOf(s *site, path string) string {
	s.T.Helper()
	_, part, ok := strings.Cut(s.mustGet(path), `<section id="outcomes"`)
	if !ok {
		s.T.Fatal("the overview has no outcomes")
	}
	part, _, _ = strings.Cut(part, "</section>")
	return part
}

// row returns the numbers of a row of the table: started, completed, failed, cancelled and active.
func row(t *testing.T, part, label string) string {
	t.Helper()
	of := regexp.MustCompile(`(?s)<tr><th scope="row"><a href="[^"]*">` + label + `</a>(.*?)</tr>`)
	m := of.FindStringSubmatch(part)
	if m == nil {
		t.Fatalf("there is no row of %s", label)
	}
	text := html.UnescapeString(regexp.MustCompile(`<[^>]+>`).ReplaceAllString(m[1], " "))
	return strings.Join(strings.Fields(text), " ")
}

// The overview shows what became of the runs of 14 days, or of 24 hours, and since when it has all of them.
func TestOutcomesOfDays(t *testing.T) {
	k := kit.New(t, dbtest.Unchecked()) // the runs never were
	look := func(path string) string { return outcomesOf(newSite(k, Config{}), path) }
	wants(t, look("/?wait"), "Runs of the last 14 days", "0 started", "No run that has completed is in the table")
	ended(k, "COMPLETED", "3 days", 12)
	ended(k, "FAILED", "3 days", 2)
	ended(k, "CANCELLED", "0 seconds", 1)
	kit.Begin(k, echo, "x")
	part := look("/?wait")
	ago := func(d time.Duration) time.Time { return time.Now().UTC().Add(-d) }
	for label, want := range map[string]string{
		ago(3 * day).Format("2 Jan"):  "may lack runs 14 12 2 0 0",
		ago(2 * day).Format("2 Jan"):  "0 0 0 0 0",
		ago(13 * day).Format("2 Jan"): "may lack runs 0 0 0 0 0",
		ago(0).Format("2 Jan"):        "2 0 0 1 1",
	} {
		if got := row(t, part, label); got != want {
			t.Errorf("%s: %s, not %s", label, got, want)
		}
	}
	wants(t, part, "16 started", "12 completed", "The numbers are complete since", `fill="url(#lacks)"`)
	if bars := strings.Count(part, `<rect class="completed"`); bars != 1 {
		t.Errorf("%d bars have completed runs", bars)
	}
	link := regexp.MustCompile(`href="/kagzi(/runs[^"]*status=failed[^"]*)"`).FindStringSubmatch(part)
	if link == nil {
		t.Fatal("no number of failed runs leads to them")
	}
	list := newSite(k, Config{}).mustGet(html.UnescapeString(link[1]))
	if n := len(regexp.MustCompile(`<tr id="run-`).FindAllString(list, -1)); n != 2 {
		t.Errorf("the list of the failed runs of a day has %d", n)
	}
	hours := look("/?over=24h&wait")
	wants(t, hours, "Runs of the last 24 h", "2 started", "Hour, UTC")
	if n := strings.Count(hours, `<tr><th scope="row">`); n != 24 {
		t.Errorf("%d hours", n)
	}

	ended(k, "COMPLETED", "40 days", 1)
	part = look("/?wait")
	lacks(t, part, "may lack runs", "#lacks)\"/>")
	wants(t, part, "The numbers are complete: the table has runs that completed as long ago as")
	if r := newSite(k, Config{}).get("/?over=7d&wait"); r.StatusCode != http.StatusBadRequest ||
		!strings.Contains(r.body, "There is no chart over") {
		t.Errorf("a time that there is not: %s", r.Status)
	}
}

// A number that may be larger has a plus, in the chart and the table, and the page says why.
func TestOutcomesOfManyRunsAreCapped(t *testing.T) {
	k := kit.New(t, dbtest.Unchecked()) // the runs never were
	s := newSite(k, Config{})
	ended(k, "COMPLETED", "5 days", 20_100)
	ended(k, "FAILED", "5 days", 1)
	part := outcomesOf(s, "/?wait")
	if got := row(t, part, time.Now().UTC().Add(-5*day).Format("2 Jan")); got != "may lack runs 20,001+ 20,000+ 1 0 0" {
		t.Errorf("of many runs: %s", got)
	}
	wants(t, html.UnescapeString(part), "“+” says that there may be more", ">20k+<", "20,001+ started")
	failed := regexp.MustCompile(`<rect class="failed" [^>]* height="(\d+)"`).FindStringSubmatch(part)
	if h, err := strconv.Atoi(failed[1]); err != nil || h < leastOutcome {
		t.Errorf("the failure among them is %s px high", failed[1])
	}
}

// The bars are as high as they are large, fit into the chart, and stand in the order of time.
func TestOutcomesAreDrawn(t *testing.T) {
	of := func(n int) admin.Tally { return admin.Tally{Runs: n} }
	rows := []outcomeRow{
		{Outcome: admin.Outcome{Completed: of(50), Failed: of(50)}, Label: "new"},
		{Outcome: admin.Outcome{Completed: of(1), Failed: of(1), Cancelled: of(1), Active: of(197)}, Label: "old"},
	}
	svg := string(outcomes{Rows: rows}.draw(web.Links("/kagzi/")))
	if strings.Index(svg, ">old<") > strings.Index(svg, ">new<") {
		t.Error("the newest bar stands first")
	}
	parts := regexp.MustCompile(`<rect class="(\w+)" x="[0-9.]+%" y="(-?\d+)" width="[0-9.]+%" height="(\d+)"`).
		FindAllStringSubmatch(svg, -1)
	if len(parts) != 8 {
		t.Errorf("there are %d parts, and not 6 of two bars", len(parts)-2)
	}
	for _, m := range parts {
		y, _ := strconv.Atoi(m[2])
		h, _ := strconv.Atoi(m[3])
		if m[1] != "whole" && (y < 0 || h < leastOutcome || y+h > outcomeTop+outcomeHeight) {
			t.Errorf("a part is beyond the chart: %s", m[0])
		}
	}
	if n := strings.Count(svg, `height="32"`); n != 2 { // 50 of 200 each
		t.Errorf("%d parts of a quarter each are as high as that, not 2\n%s", n, svg)
	}
	for tally, want := range map[admin.Tally]string{
		of(0): "0", of(999): "999", of(1000): "1.0k", of(12_345): "12k", {Runs: 20_000, More: true}: "20k+",
	} {
		if got := shortCount(tally); got != want {
			t.Errorf("%+v is %s, not %s", tally, got, want)
		}
	}
}

package ui

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
)

// The address of the list says which columns it has, and the fields suggest what the runs of the page have.
func TestColumnsOfTheList(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{})
	tags := kagzi.Metadata{"tenant": "acme", "plan": "<pro>"}
	k.Cancel(kit.Begin(k, echo, "x", kagzi.ID("one"), tags, kagzi.Group("g7")))
	plain := s.mustGet("/runs")
	wantNone(t, "the list", plain, `class="extra"`, `id="columns" open`)
	wantAll(t, "the list", plain, `list="suggested-tag"`,
		`<datalist id="suggested-metadata"><option value="plan=&lt;pro&gt;"></option><option value="tenant=acme">`,
		`<datalist id="suggested-group"><option value="g7">`, `<option value="doubt">`)
	page := s.mustGet("/runs?status=cancelled&show=group&show=ended&tag=tenant,+plan,,other")
	for _, cell := range []string{
		`data-label="Ended"><time`, `data-label="Group"><span>g7<`, `data-label="tenant"><span>acme<`,
		`data-label="plan"><span>&lt;pro&gt;<`, `data-label="other"><span class="none zero">`,
	} {
		wantAll(t, "the list with columns", page, cell)
	}
	wantAll(t, "the list with columns", page, `id="columns" open`, `value="group" checked`,
		`href="/kagzi/runs?show=group&amp;show=ended&amp;tag=tenant%2C&#43;plan%2C%2Cother">Clear`)
	if strings.Index(page, `"col">Ended<`) > strings.Index(page, `"col">Group<`) {
		t.Error("the columns have no fixed order")
	}
	many := s.mustGet("/runs?tag=" + strings.Repeat("t,", 100))
	if n := strings.Count(many, `class="extra"`); n != mostTagColumns {
		t.Errorf("there are %d columns of tags", n)
	}
	for _, c := range runColumns {
		if page := s.mustGet("/runs?show=" + c.Name); strings.Count(page, `class="extra"`) != 1 {
			t.Errorf("the list has no column %s", c.Name)
		}
	}
}

// A column says what a run has, and leads to its page.
func TestCellsOfColumns(t *testing.T) {
	run := kagzi.RunInfo{
		Attempts: 3, Recoveries: 1, Priority: 2, Schedule: "daily/x", Worker: "0123456789",
		Metadata: kagzi.Metadata{"b": "2", "a": "1"},
	}
	for name, want := range map[string]cell{
		"ended": {}, "attempts": {Text: "3"}, "recoveries": {Text: "1"}, "priority": {Text: "2"}, "group": {},
		"schedule": {Text: "daily/x", To: "/schedules/daily%2Fx"},
		"worker":   {Text: "01234567…", To: "/workers/0123456789"},
		"tags":     {Text: "a=1, b=2"},
	} {
		for _, c := range runColumns {
			if got := c.Of(run); c.Name == name && got != want {
				t.Errorf("%s: %+v, not %+v", name, got, want)
			}
			if got := c.Of(kagzi.RunInfo{}); got != (cell{}) {
				t.Errorf("%s of a run that has none: %+v", c.Name, got)
			}
		}
	}
	var runs []kagzi.RunInfo
	for i := range 3 * mostSuggested {
		runs = append(runs, kagzi.RunInfo{Key: kagzi.Key(fmt.Sprint(i))})
	}
	if got := suggestFrom(runs)["key"]; len(got) != mostSuggested {
		t.Errorf("%d keys are suggested", len(got))
	}
}

package ui

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
)

// familyOf returns the part of a page that shows the family of a run.
func familyOf(t *testing.T, page string) string {
	t.Helper()
	_, part, ok := strings.Cut(page, `<section id="family"`)
	if !ok {
		t.Fatal("the page has no family")
	}
	part, _, _ = strings.Cut(part, "</section>")
	return part
}

// nodes returns the nodes of a family's graph in their order, each as its texts.
func nodes(part string) (out []string) {
	tags := regexp.MustCompile(`<[^>]+>`)
	for _, m := range regexp.MustCompile(`(?s)<(a|div) class="node ([^"]*)"[^>]*>(.*?)</(?:a|div)>`).
		FindAllStringSubmatch(part, -1) {
		text := strings.Join(strings.Fields(tags.ReplaceAllString(m[3], " ")), " ")
		out = append(out, m[1]+" "+m[2]+": "+text)
	}
	return out
}

// A run without a family shows none, not even a heading.
func TestFamilyOfNone(t *testing.T) {
	k := kit.New(t)
	part := familyOf(t, newSite(k, Config{}).mustGet("/runs/"+string(kit.Begin(k, echo, "x").ID())))
	wants(t, part, " hidden>")
	lacks(t, part, "node", "children")
}

// The graph has the parents above a run, its children with their own below, and each says what it is and how it stands.
func TestFamilyOfThreeGenerations(t *testing.T) {
	k := kit.New(t)
	root := kagzi.Define[int, int]("root")
	tree := kagzi.Define[int, int]("tree")
	leaf := kagzi.Define[string, string]("leaf", kit.NoRetry)
	kit.Serve(k, leaf, func(ctx kagzi.Context, in string) (string, error) {
		if in == "2" {
			return "", kit.Breaks(ctx)
		}
		return in, nil
	})
	kit.Serve(k, tree, func(ctx kagzi.Context, n int) (int, error) {
		for i := range n {
			name := fmt.Sprint("leaf-", i)
			_, err := kagzi.RunChild(ctx, name, leaf, fmt.Sprint(i), kagzi.ID(name))
			if err != nil && i != 2 {
				return 0, err
			}
		}
		return n, nil
	})
	kit.Serve(k, root, func(ctx kagzi.Context, n int) (int, error) {
		return kagzi.RunChild(ctx, "grow", tree, n, kagzi.ID("oak"))
	})
	top := kit.Begin(k, root, 3, kagzi.ID("forest"))
	kit.ResultOf(k, top)
	s := newSite(k, Config{})

	page := familyOf(t, s.mustGet("/runs/forest"))
	if got := strings.Join(nodes(page), "\n"); got != "div self completed: this run forest Completed root\n"+
		"a completed: child grow · 3 children oak Completed tree" {
		t.Errorf("the family of the run with one child:\n%s", got)
	}
	wants(t, page, "1 child", ">as a list<")

	page = familyOf(t, s.mustGet("/runs/oak"))
	if got := strings.Join(nodes(page), "\n"); got != "a completed: parent forest Completed root\n"+
		"div self completed: this run, child grow oak Completed tree\n"+
		"a completed: child leaf-0 leaf-0 Completed leaf\n"+
		"a completed: child leaf-1 leaf-1 Completed leaf\n"+
		"a failed: child leaf-2 leaf-2 Failed leaf" {
		t.Errorf("the family of the run with three children:\n%s", got)
	}
	wants(t, page, `href="/kagzi/runs/`+string(top.ID())+`"`, "3 children", ">all as a list<")

	page = familyOf(t, s.mustGet("/runs/leaf-2"))
	if got := strings.Join(nodes(page), "\n"); got != "a completed: parent of the parent forest Completed root\n"+
		"a completed: parent oak Completed tree\ndiv self failed: this run, child leaf-2 leaf-2 Failed leaf" {
		t.Errorf("the family of a grandchild:\n%s", got)
	}
}

// Copies stand beside the run that they were made from, and the run that undoes a step says so.
func TestFamilyHasCopiesAndCompensations(t *testing.T) {
	k := kit.New(t)
	j := &kit.Journal{}
	kit.ServeCancellations(k, j, nil)
	kit.Serve(k, kit.Travel, func(ctx kagzi.Context, _ int) (int, error) {
		kagzi.Compensate(ctx, "flight", kit.CancelBooking.With("LH1"))
		return 0, kagzi.Do(ctx, "hotel", func(context.Context) error { return kit.Breaks(ctx) }, kit.NoRetry)
	})
	run := kit.Begin(k, kit.Travel, 1, kagzi.ID("trip"))
	kit.FailureOf(k, run, kagzi.StatusFailed)
	again, err := admin.New(k.Client).Runs.Restart(k.Ctx, run, kagzi.ID("trip-again"))
	if err != nil {
		t.Fatal(err)
	}
	kit.FailureOf(k, kit.Find(t, k.Client, kit.Travel, again), kagzi.StatusFailed)
	s := newSite(k, Config{})
	page := familyOf(t, s.mustGet("/runs/"+string(run.ID())))
	if got := strings.Join(nodes(page), "\n"); !regexp.MustCompile(`^div self failed: this run trip Failed trip
a failed: restarted as trip-again Failed trip
a completed: undoes flight [0-9a-f…]+ Completed cancel-booking$`).MatchString(got) {
		t.Errorf("the family of the run:\n%s", got)
	}
	page = familyOf(t, s.mustGet("/runs/"+string(again)))
	wants(t, strings.Join(nodes(page), "\n"), "a failed: restarted from trip Failed trip")
}

// Many children are groups, and the page reads a bounded number of them.
func TestFamilyOfTenThousand(t *testing.T) {
	k := kit.New(t, dbtest.Unchecked()) // the runs never were
	run := kit.Begin(k, echo, "x", kagzi.ID("parent"))
	k.Exec(`UPDATE kagzi.workflow_runs SET epoch = 1 WHERE run_id = $1`, run.ID()) // its history is of an earlier epoch
	children := func(n int, workflow, status string) {
		t.Helper()
		k.Exec(`INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, status, parent_run_id,
				finished_at)
			SELECT ('01900000' || lpad(to_hex((SELECT count(*) FROM kagzi.workflow_runs) + g), 8,
				'0') || '7000800000000000')::text::uuid, 'default', 'default', $2, $3, $4, now()
			FROM generate_series(1, $1::int) AS g`, n, workflow, status, run.ID())
	}
	look := func() string { return familyOf(t, newSite(k, Config{}).mustGet("/runs/parent")) }
	children(9_000, "old", "COMPLETED")
	children(980, "item", "COMPLETED")
	children(15, "item", "FAILED")
	children(5, "other <b>", "CANCELLED")
	page := look()
	if got := strings.Join(nodes(page), "\n"); got != "div self pending: this run parent Pending echo\n"+
		"a group failed: children 15 × item Failed\na group cancelled: children 5 × other &lt;b&gt; Cancelled\n"+
		"a group completed: children 980 × item Completed" {
		t.Errorf("the family of a run with ten thousand children:\n%s", got)
	}
	wants(t, page, "more than 1,000 children, of which the newest 1,000 are counted here",
		"parent="+string(run.ID())+"&amp;status=failed&amp;workflow=item")

	for i := range 20 {
		children(1, fmt.Sprint("workflow-", i), "COMPLETED")
	}
	page = look()
	all := nodes(page)
	if len(all) != 1+mostGroups+1 {
		t.Fatalf("with more groups there are %d nodes", len(all))
	}
	wants(t, all[len(all)-1], "more groups")
}

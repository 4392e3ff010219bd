package ui

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/ui/internal/web"
)

// A page names the runs that it refers to by the IDs that the application has given them.
func TestRunsAreNamedByTheirOwnIDs(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{Authorize: everybody})
	order, parcel := kagzi.Define[string, string]("order"), kagzi.Define[string, string]("parcel")
	kit.Serve(k, order, func(ctx kagzi.Context, in string) (string, error) {
		return kagzi.RunChild(ctx, "ship", parcel, in, kagzi.ID("parcel<7>"))
	})
	parent := kit.Begin(k, order, "x", kagzi.ID("order-7"))
	k.WaitStatus(parent, kagzi.StatusSleeping, "child ship")
	child := k.ChildOf(parent.ID(), "ship")
	again, err := admin.New(k.Client).Runs.Restart(k.Ctx, cancelled(k, "order-8"))
	if err != nil {
		t.Fatal(err)
	}
	named := func(id kagzi.RunID, name string) string {
		return fmt.Sprintf(`<a href="/kagzi/runs/%s" title="%s">%s</a>`, id, id, name)
	}
	wantAll(t, "the child", s.mustGet("/runs/"+string(child.ID)), named(parent.ID(), "order-7"))
	wantAll(t, "the parent", s.mustGet("/runs/order-7"), "run "+named(child.ID, "parcel&lt;7&gt;"))
	wantAll(t, "the list", s.mustGet("/runs?workflow=parcel"), "A child of run order-7")
	made := s.mustGet("/runs/" + string(again))
	wantAll(t, "the restarted run", made, "Made from</dt><dd>"+named(k.InfoOf(again).Origin, "order-8"))
	wantAll(t, "the audit log", s.mustGet("/audit"), ">order-8</a>")
}

// cancelled returns a run with the ID that was cancelled.
func cancelled(k *kit.Kit, id kagzi.ID) kagzi.RunID {
	k.T.Helper()
	run := kit.Begin(k, echo, "x", id)
	k.Cancel(run)
	return run.ID()
}

// Each run is looked up once, in few requests, and not more are remembered than the bound says.
func TestNamesOfRunsAreRemembered(t *testing.T) {
	t.Parallel()
	var statements statementCount
	pool := dbtest.OpenPool(t, dbtest.Database(t).DSN, func(c *pgxpool.Config) { c.ConnConfig.Tracer = &statements })
	k := &kit.Kit{T: t, Ctx: kit.Context(t), Pool: pool, Client: kit.NewClient(t, pool)}
	n := &runNames{client: k.Client}
	one, two := kit.Begin(k, echo, "1", kagzi.ID("one")), kit.Begin(k, echo, "2")
	const gone = kagzi.RunID("01987654-0000-7000-8000-000000000000")
	learn := func() int64 {
		t.Helper()
		before := statements.n.Load()
		if err := n.learn(k.Ctx, one.ID(), "", two.ID(), gone, one.ID()); err != nil {
			t.Fatal(err)
		}
		return statements.n.Load() - before
	}
	if learn() == 0 {
		t.Error("nothing is looked up")
	}
	if again := learn(); again != 0 {
		t.Errorf("what is known is looked up again with %d statements", again)
	}
	if got := fmt.Sprint(n.text(one.ID()), " ", n.html(two.ID()), " ", n.text(gone)); got != fmt.Sprintf(
		"one <code>%s</code> 01987654…0000", short(two.ID())) {
		t.Errorf("the names are %s", got)
	}
	if got := n.prose("/k/", "see "+string(one.ID())+" & "+string(two.ID())); string(got) != fmt.Sprintf(
		`see <a href="/k/runs/%s" title="%[1]s">one</a> &amp; <a href="/k/runs/%s" title="%[2]s"><code>%s</code></a>`,
		one.ID(), two.ID(), short(two.ID())) {
		t.Errorf("prose is %s", got)
	}
	for i := range mostNames {
		n.note(kagzi.RunInfo{ID: kagzi.RunID(fmt.Sprint(i)), ExternalID: "x"})
	}
	if last := kagzi.RunID(fmt.Sprint(mostNames - 1)); len(n.known) != mostNames || n.of(last) != "x" {
		t.Errorf("%d names are remembered", len(n.known))
	}
}

// A problem is one line with a link to where it is mended: the run, if it is about one run.
func TestProblemsLeadToWhereTheyAreMended(t *testing.T) {
	k := kit.New(t)
	run := kit.Begin(k, echo, "x", kagzi.ID("order-7"))
	id := string(run.ID())
	v := overview{Report: health.Report{Status: health.Degraded, Checks: []health.Check{
		{Name: "compensations", Status: health.Degraded, Detail: "failed for\ngood in " + id},
		{Name: "suspects", Status: health.Degraded, Detail: id + " (echo) and 01987654-0000-7000-8000-000000000000"},
		{Name: "pauses", Status: health.Degraded, Detail: "queue a"},
		{Name: "pauses", Status: health.Degraded, Detail: "queue <b>"},
	}}}
	v.find()
	s := newSite(k, Config{}, func(c *web.Config) {
		c.Routes.Pages[0].Look = func(context.Context, web.Query) (any, error) { return v, nil }
		c.Routes.Pages[0].Path = "/problems"
	})
	if err := s.all.overview.names.learn(k.Ctx, run.ID()); err != nil {
		t.Fatal(err)
	}
	page := s.mustGet("/problems")
	wantAll(t, "the overview", page, `<span class="found">failed for good in order-7</span>`,
		`</details><a href="/kagzi/runs/`+id+`">Open the run</a>`,
		`href="/kagzi/runs?waiting-on=recovery">Show the runs</a>`,
		`<span class="n">1 more</span> <span class="found">queue a</span>`, "queue &lt;b&gt;")
	if strings.Index(page, `class="tiles`) > strings.Index(page, `class="findings"`) {
		t.Error("the numbers do not come first")
	}
	for _, name := range aboutRuns {
		if helps[name] == [2]string{} {
			t.Errorf("the check %s leads nowhere", name)
		}
	}
}

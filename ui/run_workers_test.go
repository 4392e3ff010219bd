package ui

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/kit"
)

// A run whose first worker drained: the lane has both, the table says who made which step, and the registry may forget
// them.
func TestATakeoverIsShown(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{})
	approved := kagzi.DefineSignal[string]("approved")
	fn := func(ctx kagzi.Context, in string) (string, error) {
		nothing := func(context.Context) error { return nil }
		if err := kagzi.Do(ctx, "reserve", nothing); err != nil {
			return "", err
		}
		if _, err := kagzi.WaitSignal(ctx, approved); err != nil {
			return "", err
		}
		return in, kagzi.Do(ctx, "ship", nothing)
	}
	stop := kit.Serve(k, echo, fn)
	run := kit.Begin(k, echo, "x", kagzi.ID("order"))
	k.WaitStatus(run, kagzi.StatusSleeping)
	first := kit.Only(t, k.Client, admin.WorkerFilter{}).ID
	name := ">" + fmt.Sprintf("%s:%d", hostname(t), os.Getpid()) + "<"
	one := s.mustGet("/runs/order")
	wants(t, one, `id="row-workers"`, `href="/kagzi/workers/`+first+`"`, "Executed by </span>"+name[1:])
	lacks(t, one, `class="takeover"`, ">by <a", " died")
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	kit.Serve(k, echo, fn)
	k.Signal(run, approved.With("yes"))
	kit.ResultOf(k, run)
	second := kit.Only(t, k.Client, admin.WorkerFilter{Status: []string{"ONLINE"}}).ID
	s.web.Cache.Expire()
	two := s.mustGet("/runs/order")
	wants(t, two, "2 workers", "executed by 2 workers, with 1 takeover", `class="takeover"`, `href="/kagzi/workers/`+
		first+`" tabindex="-1"`, `href="/kagzi/workers/`+second+`" tabindex="-1"`)
	if n := strings.Count(two, ">by <a"); n != 3 || !strings.Contains(two, name) {
		t.Errorf("%d of 3 steps say who recorded them", n)
	}
	k.Exec(`DELETE FROM kagzi.workers WHERE worker_id = $1`, first)
	k.Exec(`UPDATE kagzi.workflow_runs SET recoveries = 2 WHERE run_id = $1`, string(run.ID()))
	s = newSite(k, Config{})
	wants(t, s.mustGet("/runs/order"), ">"+short(kagzi.RunID(first))+"<", name, "2 died",
		"2 workers died since the last record")
}

func hostname(t *testing.T) string {
	t.Helper()
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// 2,000 steps of many workers are a few bars, and more executions than can be seen are one.
func TestManyExecutionsAreDrawnTogether(t *testing.T) {
	k := kit.New(t)
	run := kit.Begin(k, echo, "x", kagzi.ID("crawl"))
	k.Exec(manySteps, string(run.ID()))
	takeovers := func(every int) string {
		k.Exec(`UPDATE kagzi.step_runs SET worker_id = ('00000000-0000-7000-8000-' || lpad((position / $2::int)::text,
			12, '0'))::uuid WHERE run_id = $1`, string(run.ID()), every)
		_, lane, _ := strings.Cut(newSite(k, Config{}).mustGet("/runs/crawl"), `id="row-workers"`)
		lane, _, _ = strings.Cut(lane, "</li>")
		return lane
	}
	few := takeovers(250)
	wants(t, few, "4 workers", ">00000000…0003<", "taken over by")
	if n := strings.Count(few, "<rect"); n > 600 {
		t.Errorf("%d elements", n)
	}
	wants(t, takeovers(2), "500 workers", "500 executions: zoom in")
}

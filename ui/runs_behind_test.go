package ui

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
)

// A run that waits for the slot of its key or group names the run that has it, in the list and on its own page.
func TestRunsNameTheOneThatTheyWaitBehind(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{})
	if err := admin.New(k.Client).Keys.Set(k.Ctx, "default", "acme", admin.KeyLimits{MaxRunning: 1}); err != nil {
		t.Fatal(err)
	}
	began, end := make(chan string, 2), make(chan struct{})
	kit.Serve(k, echo, func(_ kagzi.Context, in string) (string, error) {
		began <- in
		<-end
		return in, nil
	})
	t.Cleanup(func() { close(end) })
	kit.Begin(k, echo, "key", kagzi.ID("order/big2"), kagzi.Key("acme"))
	holder := kit.Begin(k, echo, "group", kagzi.Group("ledger"))
	for range 2 {
		<-began
	}
	byKey := kit.Begin(k, echo, "x", kagzi.ID("order-3"), kagzi.Key("acme"))
	kit.Begin(k, echo, "x", kagzi.ID("order-4"), kagzi.Key("acme"))
	byGroup := kit.Begin(k, echo, "x", kagzi.ID("order-5"), kagzi.Group("ledger"))
	kit.Begin(k, echo, "x", kagzi.ID("order-6"), kagzi.Queue("side"), kagzi.Key("acme"))
	const ofKey = `behind <a href="/kagzi/runs/order%2Fbig2">order/big2</a>`
	ofGroup := fmt.Sprintf(`behind <a href="/kagzi/runs/%s" title="%[1]s"><code>%s</code></a>`, holder.ID(),
		short(holder.ID()))
	for id, want := range map[string]string{"order-3": ofKey, "order-4": ofKey, "order-5": ofGroup} {
		wantAll(t, id, s.mustGet("/runs?status=pending&id="+id), want)
	}
	for _, id := range []string{"order-6", "order/big2"} {
		wantNone(t, id, s.mustGet("/runs?id="+id), "behind <a")
	}
	wantAll(t, "the page", s.mustGet("/runs/"+string(byKey.ID())), "key acme (1 of 1 running), "+ofKey)
	wantAll(t, "the page", s.mustGet("/runs/"+string(byGroup.ID())), ofGroup)
	s.mustGet("/runs/order%2Fbig2")
}

// However many keys the runs of a page have, few of them are asked.
func TestFewKeysAreAskedWhichRunHoldsTheirSlots(t *testing.T) {
	t.Parallel()
	var statements statementCount
	pool := dbtest.OpenPool(t, dbtest.Database(t).DSN, func(c *pgxpool.Config) { c.ConnConfig.Tracer = &statements })
	k := &kit.Kit{T: t, Ctx: kit.Context(t), Pool: pool, Client: kit.NewClient(t, pool)}
	s := newSite(k, Config{})
	var runs []kagzi.RunInfo
	for i := range 3 * mostBehind {
		runs = append(runs, k.InfoOf(kit.Begin(k, echo, "x", kagzi.Key(fmt.Sprint("key-", i)))))
	}
	cost := func(runs []kagzi.RunInfo) int64 {
		t.Helper()
		before := statements.n.Load()
		if _, err := s.all.runs.behind(k.Ctx, runs); err != nil {
			t.Fatal(err)
		}
		return statements.n.Load() - before
	}
	if few, many := cost(runs[:mostBehind]), cost(runs); few < mostBehind || many != few {
		t.Errorf("%d keys cost %d statements, and %d keys %d", mostBehind, few, len(runs), many)
	}
}

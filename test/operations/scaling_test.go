package operations

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
)

// The query that docs/monitoring.md gives KEDA wants a slot for each run without a key, and one for each key with a
// free slot, before a worker comes and while it is full. It wants none when all is done. Package inspect has a test of
// its rows.
func TestScalingQueryFollowsTheWork(t *testing.T) {
	k := kit.New(t)
	page, err := os.ReadFile("../../docs/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	query := regexp.MustCompile("(?m)^        query: \\|\n((?:          .*\n)+)```$").FindSubmatch(page)
	if query == nil {
		t.Fatal("the page has no query")
	}
	wanted := func() int { return k.Count(strings.ReplaceAll(string(query[1]), "'shop'", "'default'")) }

	if err := admin.New(k.Client).Queues.Set(k.Ctx, admin.QueueLimits{
		Queue: "default", EachKey: admin.KeyLimits{MaxRunning: 1},
	}); err != nil {
		t.Fatal(err)
	}
	g := kit.NewGate()
	runs := kit.StartRuns(t, k.Client, g.Workflow, 3)
	for _, key := range []string{"a", "a", "b"} {
		runs = append(runs, kit.Begin(k, g.Workflow, 0, kagzi.Key(key)))
	}
	if n := wanted(); n != 3+2 {
		t.Fatalf("three runs and two keys want %d slots", n)
	}
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{MaxConcurrent: 2})
	g.Handle(w)
	kit.StartWorker(t, w)
	await.Receive(t, g.Begun)
	await.Receive(t, g.Begun)
	await.True(t, "a full worker changes nothing of that", func() bool { return wanted() == 3+2 })
	close(g.Open)
	for _, run := range runs {
		kit.ResultOf(k, run)
	}
	await.True(t, "no slot is wanted when all is done", func() bool { return wanted() == 0 })
}

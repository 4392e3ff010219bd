package ui

import (
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/ui/internal/web"
)

// The end of a run that was started long ago is counted by the first look, and then by one in ten minutes; that of a
// new one at once.
func TestEndsOfOldRunsAreCountedNowAndThen(t *testing.T) {
	k := kit.New(t, dbtest.Unchecked()) // the runs never were
	s := newSite(k, Config{})
	end := func(age string) {
		k.Exec(`INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, status, started_at,
			finished_at, created_at)
			SELECT (lpad(to_hex((extract(epoch FROM c.at) * 1000)::bigint), 12,
				'0') || '70008' || substr(md5(random()::text), 1, 15))::uuid, 'default', 'default', 'echo', 'COMPLETED',
				c.at, now(), c.at
			FROM (SELECT now() - $1::text::interval AS at) c`, age)
	}
	completed := func(want int, when string) {
		t.Helper()
		view, err := s.all.overview.rates.look(k.Ctx, web.Query{})
		if err != nil {
			t.Fatal(err)
		}
		if got := view.(chart).Sum.Completed; got != want {
			t.Errorf("%s %d runs have completed, not %d", when, got, want)
		}
	}
	end("5 days")
	completed(1, "at first")
	end("0 days")
	completed(2, "after a new run has ended")
	end("5 days")
	completed(2, "after an old run has ended, which the next count among all finds,")
	s.all.overview.rates.among -= endsEvery
	completed(3, "after that count")
	counts, err := admin.New(k.Client).Runs.Count(k.Ctx, kagzi.RunFilter{}, admin.ByStatus)
	if err != nil || len(counts) != 1 || counts[0].Runs != 3 {
		t.Errorf("the runs are %+v, %v", counts, err)
	}
	completed(3, "and once more")
}

package ui

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/kit"
)

// Workers that stop again and again, soon after they have started, are one line.
func TestWorkersThatStopInALoop(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{})
	for _, build := range []string{"loops", "loops", "once", "loops"} {
		w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{Build: build, Queue: "shop"})
		kagzi.Handle(w, echo, func(_ kagzi.Context, in string) (string, error) { return in, nil })
		if err := errors.Join(w.Start(k.Ctx), w.Stop(k.Ctx)); err != nil {
			t.Fatal(err)
		}
	}
	_, rows, _ := strings.Cut(s.mustGet("/workers"), `id="worker-rows"`)
	wantAll(t, "the list", rows, "3 workers of queue shop", "<code>loops</code>", "status=offline", "<code>once</code>")
	if n := strings.Count(rows, "<code>loops</code>"); n != 1 {
		t.Errorf("%d lines of the loop:\n%s", n, rows)
	}
	all := s.mustGet("/workers?status=offline")
	if n := strings.Count(all, "<code>loops</code>"); n != 3 {
		t.Errorf("%d of 3 workers are offline:\n%s", n, all)
	}
}

func TestWhichWorkersAreALoop(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	worker := func(id int, build string, ran time.Duration) admin.WorkerInfo {
		stopped := at.Add(-time.Duration(id) * time.Minute)
		return admin.WorkerInfo{
			ID: fmt.Sprint(id), Queues: []string{"shop"}, Build: build,
			StartedAt: stopped.Add(-ran), StoppedAt: stopped,
		}
	}
	rest, loops := foldLoops([]admin.WorkerInfo{
		worker(1, "v2", 10*time.Second), worker(2, "v1", time.Hour), worker(3, "v2", 5*time.Minute),
		worker(4, "v1", time.Second), worker(5, "v2", time.Second), worker(6, "v2", 5*time.Minute+1),
		worker(7, "v1", time.Second),
	})
	var left []string
	for _, w := range rest {
		left = append(left, w.ID)
	}
	if got := strings.Join(left, " "); got != "2 4 6 7" {
		t.Errorf("in no loop: %s", got)
	}
	if len(loops) != 1 || loops[0].Workers != 3 || loops[0].Longest != 5*time.Minute ||
		!loops[0].Last.Equal(at.Add(-time.Minute)) || !loops[0].First.Equal(at.Add(-5*time.Minute)) {
		t.Errorf("loops: %+v", loops)
	}
}

package load_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/chaos/internal/evidence"
	"github.com/kagzi/kagzi/chaos/internal/load"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/request"
	"github.com/kagzi/kagzi/topic"
)

// harmless reports whether a program leaves its process alive.
func harmless(ops []load.Op) bool {
	for _, op := range ops {
		if strings.HasPrefix(op.Name, "die") || op.Name == "poison" || op.Child.Seed != 0 &&
			!harmless(load.Of(op.Child).Ops) {
			return false
		}
		for _, branch := range op.Branches {
			if !harmless(branch) {
				return false
			}
		}
	}
	return true
}

// TestProgramsDependOnTheirJobsOnly makes each program twice.
func TestProgramsDependOnTheirJobsOnly(t *testing.T) {
	t.Parallel()
	kinds := map[string]bool{}
	for n := range 300 {
		job := load.Job{Seed: 5, N: n}
		p := load.Of(job)
		if !reflect.DeepEqual(p, load.Of(job)) {
			t.Fatalf("job %v has two programs", job)
		}
		if a, b := load.ScriptOf(job), load.ScriptOf(job); a.ID != b.ID || a.Verb != b.Verb || a.Tx != b.Tx ||
			a.Job != b.Job || len(a.Options) != len(b.Options) {
			t.Fatalf("job %v has two scripts: %+v, %+v", job, a, b)
		}
		for _, op := range p.Ops {
			kinds[op.Kind] = true
		}
	}
	if len(kinds) < 18 {
		t.Errorf("300 programs have operations of %d kinds only: %v", len(kinds), kinds)
	}
}

// TestOracle has a worker execute programs with nothing broken. Each run ends as the oracle says, with both versions of
// the code.
func TestOracle(t *testing.T) {
	k := kit.New(t)
	for _, make := range []func() error{
		func() error { return evidence.CreateTables(k.Ctx, k.Pool) },
		func() error { return load.OpenAccounts(k.Ctx, k.Pool) },
		func() error { return admin.New(k.Client).Limits.Set(k.Ctx, load.Gate) },
		func() error { return admin.New(k.Client).Limits.Set(k.Ctx, load.Door) },
	} {
		if err := make(); err != nil {
			t.Fatal(err)
		}
	}
	const version = 2
	ledger := filepath.Join(t.TempDir(), "worker.ledger")
	led, err := evidence.OpenLedger(ledger, "1.1")
	if err != nil {
		t.Fatal(err)
	}
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{Queues: load.Queues})
	h := load.Handler{Ledger: led, Dir: t.TempDir(), Reach: func(string) {}}
	h.Register(w, version)
	kit.StartWorker(t, w)

	var jobs []load.Job
	for n := 0; len(jobs) < 60; n++ {
		if job := (load.Job{Seed: 11, N: n}); harmless(load.Of(job).Ops) {
			jobs = append(jobs, job)
		}
	}
	var all sync.WaitGroup
	for _, job := range jobs {
		all.Go(func() { follow(t, k, job, version) })
	}
	all.Wait()
	checkUndone(t, ledger, jobs, k)
	if n := dbtest.QueryOne[int](t, k.Pool, `SELECT sum(balance) FROM chaos.accounts`); n != load.Accounts*
		load.Balance {
		t.Errorf("the accounts have %d, want %d", n, load.Accounts*load.Balance)
	}
}

// follow starts the run of a job, sends its messages, and compares its end with what the oracle says.
func follow(t *testing.T, k *kit.Kit, job load.Job, version int) {
	run, err := kagzi.Start(k.Ctx, k.Client, load.Run, job, kagzi.Queue("plain"), kagzi.ID(jobID(job)))
	if err != nil {
		t.Error(err)
		return
	}
	messages, requests := load.Messages(job)
	for _, p := range load.NewsOf(job) {
		for _, payload := range []string{p.Payload, "too late"} {
			e := load.News.With(payload).WithID(kagzi.ID(p.ID))
			if err := topic.New(k.Client).Publish(k.Ctx, e); err != nil {
				t.Error(err)
			}
		}
	}
	for _, payload := range messages {
		if err := k.Client.Signal(k.Ctx, run, load.Mail.With(payload)); err != nil &&
			!errors.Is(err, kagzi.ErrRunFinished) {
			t.Error(err)
		}
	}
	question := func(i int) request.Question[string] {
		return load.Asked.With(requests[i]).WithID(kagzi.ID(fmt.Sprint("r", i)))
	}
	for i := range requests {
		if err := request.Send(k.Ctx, k.Client, run, question(i)); err != nil && !errors.Is(err, kagzi.ErrRunFinished) {
			t.Error(err)
		}
	}
	want := load.Expect(job, version)
	got, err := run.Result(k.Ctx)
	for i := range requests {
		answer, err := request.Ask(k.Ctx, k.Client, run, question(i))
		if answer != load.Answer(requests[i]) && (!want.Failed || !errors.Is(err, kagzi.ErrRunFinished)) {
			t.Errorf("job %d answered %q, %v", job.N, answer, err)
		}
	}
	re, failed := errors.AsType[*kagzi.RunError](err)
	switch {
	case want.Failed && (!failed || re.Status != kagzi.StatusFailed):
		t.Errorf("job %d ended with %q, %v; want a failure", job.N, got, err)
	case !want.Failed && (err != nil || got != want.Output):
		t.Errorf("job %d ended with %q, %v; want %q of %+v", job.N, got, err, want.Output, load.Of(job))
	}
}

func jobID(job load.Job) string {
	return "job " + string(rune('a'+job.N%26)) + strings.Repeat("x", job.N/26)
}

// checkUndone compares the compensations of the runs with what the oracle says.
func checkUndone(t *testing.T, ledger string, jobs []load.Job, k *kit.Kit) {
	t.Helper()
	lines, err := evidence.ReadLedgers(filepath.Dir(ledger))
	if err != nil {
		t.Fatal(err)
	}
	undone := map[string][]string{}
	for _, l := range lines {
		if l.Event == evidence.Undo {
			undone[l.Run] = append(undone[l.Run], l.Detail)
		}
	}
	some := 0
	for _, job := range jobs {
		info, err := k.Client.Get(k.Ctx, kagzi.ID(jobID(job)))
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		if end := load.Expect(job, 2); end.Failed || end.RollsBack {
			want = slices.Clone(end.Registered)
			slices.Reverse(want)
		}
		some += len(want)
		if got := undone[string(info.ID)]; !slices.Equal(got, want) {
			t.Errorf("job %d undid %v, want %v", job.N, got, want)
		}
	}
	if some == 0 {
		t.Error("no job has anything to undo: the test shows nothing")
	}
}

package replay_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/replay"
	"github.com/kagzi/kagzi/internal/standing"
	"github.com/kagzi/kagzi/store"
)

// A desk is a host without a session and without a database: the test flushes by hand.
type desk struct {
	*testing.T
	enqueued, ended chan bool
}

func (d desk) Enqueued()                  { d.enqueued <- true }
func (desk) Released()                    {}
func (d desk) Valued(uuid.UUID)           {}
func (d desk) Left([]store.Answer)        {}
func (d desk) Ended(bool)                 { d.ended <- true }
func (desk) Abandoned()                   {}
func (desk) MayLinger(time.Duration) bool { return false }
func (desk) HasNews()                     {}
func (desk) Stepped(int)                  {}
func (desk) Replied(*store.Record)        {}
func (desk) Started(*store.NewRun)        {}
func (desk) Finished(*store.Finish)       {}
func (desk) Suspended(*store.Suspension)  {}

// run prepares a run in memory.
func (d desk) run(loads bool) *replay.Run {
	now := time.Now()
	w := standing.New(nil, slog.New(slog.DiscardHandler), func() {}, func() {})
	w.Clock.Set(now, now, now)
	env := replay.NewEnv(replay.Language{
		StepContext: func(ctx context.Context, _ replay.StepIdentity) context.Context { return ctx },
	}).With(w, nil)
	r := &replay.Run{}
	env.Prepare(r, d, &store.ClaimedRun{
		RunID: uuid.New(), Lease: uuid.New(), Spec: store.Spec{Type: "wf", Version: 1}, StartedAt: now,
		Input: []byte("2"),
		Term:  store.Term{Asked: now, Ends: now.Add(time.Hour)},
	}, loads)
	return r
}

// flush takes what the run has to write, and says that it is written.
func (d desk) flush(r *replay.Run) *store.Flush {
	d.Helper()
	await.Receive(d.T, d.enqueued)
	f := &store.Flush{}
	if n, _ := r.Take(0, 0, 100, 1<<20); n == 0 || !r.AddTo(f) {
		d.Fatal("there is nothing to write")
	}
	for _, record := range f.Records {
		record.Outcome = store.Done
	}
	for _, end := range f.Finishes {
		end.Outcome = store.Done
	}
	r.Settle(store.Witness{}, d)
	if more, _ := r.More(false); more {
		d.enqueued <- true
	}
	return f
}

// A doubled is a step's function, and counts its calls.
type doubled struct{ calls int }

func (s *doubled) Call(context.Context, pgx.Tx) (any, error) {
	s.calls++
	return "4", nil
}

func (s *doubled) Encode(_ string, result any) ([]byte, *replay.Registration, error) {
	return []byte(result.(string)), nil, nil
}

func (s *doubled) Decodes([]byte) error { return nil }

func (s *doubled) Reconcile(context.Context) (any, bool, error) {
	return nil, false, errors.New("not asked")
}

// handler executes the step, and returns its result.
func (s *doubled) handler(b *replay.Branch, _ []byte) ([]byte, error) {
	row, err := b.Step(&replay.StepSpec{Name: "double", Function: s})
	if err != nil {
		return nil, errors.New("no step may fail here")
	}
	return row.Output, nil
}

// TestARunInMemory gives a run bytes, without a session and without a database, and takes its writes. Another
// execution, which is given these writes as its history, does not repeat the step.
func TestARunInMemory(t *testing.T) {
	t.Parallel()
	d := desk{t, make(chan bool, 10), make(chan bool, 10)}
	var step doubled
	r := d.run(false)
	r.Begin(step.handler)
	all := d.flush(r)
	if len(all.Finishes) == 0 { // the end has not come within a millisecond
		all.Finishes = d.flush(r).Finishes
	}
	if len(all.Records) != 1 || string(all.Records[0].Output) != "4" {
		t.Fatalf("the step wrote %d records", len(all.Records))
	}
	if len(all.Finishes) != 1 || string(all.Finishes[0].Output) != "4" || all.Finishes[0].Status != store.Completed {
		t.Fatalf("the run wrote %+v as its end", all.Finishes)
	}
	await.Receive(t, d.ended)

	again := d.run(true)
	if !again.Load([]*store.StepRow{&all.Records[0].StepRow}, nil, nil) {
		t.Fatal("the run does not begin")
	}
	again.Begin(step.handler)
	end := d.flush(again)
	if len(end.Records) > 0 || len(end.Finishes) != 1 || string(end.Finishes[0].Output) != "4" || step.calls != 1 {
		t.Errorf("a replay wrote %d records and %d ends, after %d calls", len(end.Records), len(end.Finishes),
			step.calls)
	}
	await.Receive(t, d.ended)
}

package store

import (
	"testing"
	"time"

	"github.com/google/uuid"
)

// A step's input is with its attempt, for people: what a run is replayed from does not have it.
func TestInputOfAStep(t *testing.T) {
	t.Parallel()
	s := open(t)
	r := running(t, s, 1)[0]
	write := func(step string, attempt int, status, input string) {
		t.Helper()
		rec := record(r, step, "output")
		rec.Attempt, rec.Status = attempt, status
		if input != "" {
			rec.Input = []byte(input)
		}
		flush(t, s, &Flush{Records: []*Record{rec}})
		wantOutcome(t, step, rec.Outcome, Done)
	}
	write("begun", 1, Running, "first")
	write("begun", 1, Failed, "") // keeps what was given before
	write("begun", 2, Completed, "second")
	write("none", 1, Completed, "")
	withInput := record(r, "transaction", "output")
	withInput.Input = []byte{0, 0xff}
	tx := begin(t, s)
	if !recordIn(t, s, tx, withInput) {
		t.Error("not written")
	}
	commit(t, tx)
	compensation := registering(r, "compensation", 1)
	compensation.Compensation.Input = []byte("the run's")
	flush(t, s, &Flush{Records: []*Record{compensation}})

	few, err := s.Histories.Attempts(t.Context(), &Run{RunID: r.RunID}, StepPayloads{Steps: []string{"begun"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range few {
		if asked := a.StepID == "begun"; (a.Input != nil) != asked || !asked && a.Output != nil {
			t.Errorf("of %s were read %q and %q", a.StepID, a.Input, a.Output)
		}
	}
	attempts, err := s.Histories.Attempts(t.Context(), &Run{RunID: r.RunID}, StepPayloads{All: true})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, a := range attempts {
		got[a.StepID] += string(a.Input) + ";"
		if a.Input == nil {
			got[a.StepID] += "nil"
		}
	}
	for step, want := range map[string]string{
		"begun": "first;second;", "none": ";nil", "transaction": "\x00\xff;",
		compensation.StepID: ";nil",
	} {
		if got[step] != want {
			t.Errorf("%s was given %q, want %q", step, got[step], want)
		}
	}

	histories, err := s.Histories.Latest(t.Context(), []uuid.UUID{r.RunID})
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := s.Histories.Load(t.Context(),
		LoadRequest{Runs: []uuid.UUID{r.RunID}, Most: NoLimit, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	row, _, err := s.Records.StepResult(t.Context(), held(r), "begun", 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range append(append(histories[r.RunID], loaded.Steps[r.RunID]...), row) {
		if row.Input != nil {
			t.Errorf("the history has the input of %s: %q", row.StepID, row.Input)
		}
	}
	if n := len(histories[r.RunID]); n != 4 {
		t.Errorf("%d steps in the history, want 4", n)
	}
}

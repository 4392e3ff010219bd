package store

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

// TestLoadBringsAsMuchAsIsAskedFor shows that of a run which has more than was asked for nothing passes for the whole.
func TestLoadBringsAsMuchAsIsAskedFor(t *testing.T) {
	t.Parallel()
	s := open(t)
	runs := running(t, s, 4)
	big := strings.Repeat("x", 100_000)
	var records []*Record
	for i, r := range runs {
		records = append(records, record(r, "a", "small"))
		if i == 1 {
			records = append(records, record(r, "b", big), record(r, "c", "small"))
		}
	}
	if err := s.Records.Flush(t.Context(), &Flush{Records: records}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := s.Messages.Send(t.Context(), nil, Message{
			RunID: runs[2].RunID, Name: "s", ID: uuid.NewString(),
			Payload: []byte(big),
		}); err != nil {
			t.Fatal(err)
		}
	}
	var ids []uuid.UUID
	for _, r := range runs {
		ids = append(ids, r.RunID)
	}
	for _, test := range []struct {
		most int64
		more []int // of runs
	}{
		{NoLimit, nil}, {300_000, nil}, {150_000, nil}, {1000, []int{1}}, {1, []int{0, 1, 2, 3}},
	} {
		got, err := s.Histories.Load(t.Context(),
			LoadRequest{Runs: ids, Woken: ids, Most: test.most, Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		want := map[uuid.UUID]bool{}
		for _, i := range test.more {
			want[ids[i]] = true
		}
		for i, id := range ids {
			steps := 1
			if i == 1 {
				steps = 3
			}
			whole := len(got.Steps[id]) == steps
			if got.More[id] != want[id] || whole == want[id] {
				t.Errorf("up to %d bytes, run %d: more %t, %d steps, %d messages", test.most, i, got.More[id],
					len(got.Steps[id]), len(got.Inbox[id].Signals))
			}
		}
		// Of messages, a page is read, which says what it lacks.
		messages := map[int64]int{NoLimit: 2, 300_000: 2, 150_000: 1}[test.most]
		if n := got.Inbox[ids[2]]; len(n.Signals) != messages || (n.Rest == "") != (messages == 2) {
			t.Errorf("up to %d bytes: %d messages, and the rest from %q on", test.most, len(n.Signals), n.Rest)
		}
		if test.most == 1000 && len(got.Steps[ids[1]]) != 1 {
			t.Errorf("%d steps of a run that has more, want those before it has", len(got.Steps[ids[1]]))
		}
	}
	size, err := s.Histories.Size(t.Context(), ids[2], time.Minute)
	if err != nil || size > 10_000 {
		t.Errorf("size %d, %v; messages do not count, because a page of them is read", size, err)
	}
}

// TestLoadBoundsChildrensResults shows the same of the ends of children.
func TestLoadBoundsChildrensResults(t *testing.T) {
	t.Parallel()
	s := open(t)
	parent := running(t, s, 1)[0]
	child := uuid.New()
	start := record(parent, "child", "")
	start.Status, start.Kind, start.ChildRunID = Running, KindChild, child
	start.Start = &NewRun{Spec: Spec{Queue: "queue", Type: "type", Priority: 3}}
	if err := s.Records.Flush(t.Context(), &Flush{Records: []*Record{start}}); err != nil {
		t.Fatal(err)
	}
	c := claim(t, s, request(1)).Runs[0]
	end := finish(c)
	end.Output = []byte(strings.Repeat("x", 100_000))
	if err := s.Records.Flush(t.Context(), &Flush{Finishes: []*Finish{end}}); err != nil || end.Outcome != Done {
		t.Fatal(err, end.Outcome)
	}
	ids := []uuid.UUID{parent.RunID}
	for most, more := range map[int64]bool{NoLimit: false, 50_000: true} {
		got, err := s.Histories.Load(t.Context(), LoadRequest{Runs: ids, Woken: ids, Most: most, Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(got.Inbox[ids[0]].Ends); got.More[ids[0]] != more || more == (n == 1) {
			t.Errorf("up to %d bytes: more %t, %d ends", most, got.More[ids[0]], n)
		}
	}
	size, err := s.Histories.Size(t.Context(), parent.RunID, time.Minute)
	if err != nil || size < 100_000 {
		t.Errorf("size %d, %v; want that of the result", size, err)
	}
}

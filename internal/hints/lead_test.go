package hints_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/hints"
	"github.com/kagzi/kagzi/internal/testlog"
	"github.com/kagzi/kagzi/store"
)

// A coordinator of another namespace is not heard: no other may rest for it. Queues whose names do not fit into a
// notification are left out, so no worker takes them for idle.
func TestLeadIsHeardInItsNamespace(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t)
	h := newHints(t, pool)
	other := hints.New(store.New(pool, "other"), testlog.New(t), func(context.Context) error { return nil })
	defer h.Listen()()
	heard := make(chan hints.Lead, 10)
	defer h.OnLead(func(l hints.Lead) { heard <- l })()
	await.True(t, "the process listens", h.Listening)
	long := slices.Repeat([]string{strings.Repeat("q", 100)}, 100)
	for _, said := range []struct {
		by   *hints.Hints
		lead hints.Lead
	}{
		{other, hints.Lead{Schema: 1, Queues: true}},
		{h, hints.Lead{Schema: 2, Queues: true, Busy: long}},
		{h, hints.Lead{Schema: 3, Queues: true, Busy: []string{"busy"}}},
	} {
		if err := said.by.Lead(t.Context(), said.lead); err != nil {
			t.Fatal(err)
		}
	}
	if l := await.Receive(t, heard); l.Schema != 2 || l.Namespace != "default" || l.Queues || l.Busy != nil {
		t.Errorf("heard %+v first, want the second without its queues", l)
	}
	if l := await.Receive(t, heard); l.Schema != 3 || !l.Queues || !slices.Equal(l.Busy, []string{"busy"}) {
		t.Errorf("heard %+v next, want the third with its queue", l)
	}
}

package store

import (
	"testing"

	"github.com/google/uuid"
)

// A page of messages counts their headers, which may be larger than their payloads.
func TestPagesCountHeaders(t *testing.T) {
	t.Parallel()
	s := open(t)
	r := running(t, s, 1)[0]
	const n = 200
	fillInbox(t, s, r.RunID, n)
	exec(t, s.pool, `UPDATE kagzi.signals SET headers = jsonb_build_object('a', repeat('x', 16000))`)
	inbox, err := s.Messages.Inbox(t.Context(), []uuid.UUID{r.RunID})
	if in := inbox[r.RunID]; err != nil || len(in.Signals) != messagePage/16_211 || in.Rest != "other" {
		t.Errorf("%d messages in the inbox, the rest from %q on, %v", len(in.Signals), in.Rest, err)
	}
	read := 0
	for more, after := true, int64(0); more; {
		var page []*Signal
		if page, more, err = s.Messages.UnreadOfName(t.Context(), r.RunID, "other", after); err != nil ||
			len(page) == 0 ||
			len(page) > messagePage/16_000 {
			t.Fatalf("%d messages in a page, %v", len(page), err)
		}
		read, after = read+len(page), page[len(page)-1].Sequence
	}
	if read != n {
		t.Errorf("%d messages in all pages", read)
	}
}

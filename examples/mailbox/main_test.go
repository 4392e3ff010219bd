package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/kagzitest"
)

func Example() {
	main()
	// Output:
	// rows 1 to 10
	// rows 11 to 14
	// 14 emails, the first from Ada: invoice 1
}

// A desk is the office of a test, whose worker runs.
type desk struct {
	*office
	env     *kagzitest.Env
	inbox   []Email
	rows    []string // of the sheet
	writes  []int    // how many rows each call has written
	broken  error    // what the sheet returns
	digests []string
}

// newDesk opens a desk whose mailbox is read so often.
func newDesk(t *testing.T, every time.Duration) *desk {
	d := &desk{env: kagzitest.New(t)}
	d.office = &office{
		client: d.env.Client, patience: 5 * time.Minute, next: atEight,
		mailbox: func(context.Context) ([]Email, error) { return d.inbox, nil },
		write: func(_ context.Context, row int, emails []Email) error {
			if d.broken != nil {
				return d.broken
			}
			d.rows = d.rows[:row-1]
			for _, e := range emails {
				d.rows = append(d.rows, e.Subject)
			}
			d.writes = append(d.writes, len(emails))
			return nil
		},
		send: func(_ context.Context, digest string) error {
			d.digests = append(d.digests, d.env.Now().Format("Mon 15:04 ")+digest)
			return nil
		},
	}
	d.handle(d.env.Worker)
	d.env.Advance(0)
	if err := d.client.Schedule(t.Context(), kagzi.Schedule{
		Name: "fetch-mail", Every: every,
		Run: Fetch.With(struct{}{}), Overlap: kagzi.OverlapSkip,
	}); err != nil {
		t.Fatal(err)
	}
	return d
}

// receive puts n emails into the mailbox.
func (d *desk) receive(n int) {
	for range n {
		i := len(d.inbox) + 1
		d.inbox = append(d.inbox, Email{ID: fmt.Sprint("m", i), From: "Ada", Subject: fmt.Sprint("mail ", i)})
	}
}

func (d *desk) mustWrite(t *testing.T, want ...int) {
	t.Helper()
	if !slices.Equal(d.writes, want) {
		t.Fatalf("wrote %v, want %v", d.writes, want)
	}
}

// Ten emails are written at once, fewer after five minutes, and none twice although the mailbox is read every minute.
func TestBatches(t *testing.T) {
	t.Parallel()
	d := newDesk(t, time.Minute)
	d.receive(23)
	d.env.Advance(2 * time.Minute)
	d.mustWrite(t, 10, 10)
	d.env.Advance(8 * time.Minute)
	d.mustWrite(t, 10, 10, 3)
	d.receive(6)
	d.env.Advance(2 * time.Minute)
	d.receive(4) // makes it ten
	d.env.Advance(2 * time.Minute)
	d.mustWrite(t, 10, 10, 3, 10)
	for i, row := range d.rows {
		if want := fmt.Sprint("mail ", i+1); row != want {
			t.Errorf("row %d is %q, want %q", i+1, row, want)
		}
	}
}

// The digest comes at eight, if there is anything to say.
func TestDigests(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 12*time.Hour)
	now := d.env.Now()
	d.env.Advance(atEight(now).Add(time.Hour).Sub(now))
	for day := range 30 {
		d.receive(day % 3)
		d.env.Advance(24 * time.Hour)
	}
	if len(d.digests) != 20 {
		t.Fatalf("%d digests, want 20: %q", len(d.digests), d.digests)
	}
	for i, text := range d.digests {
		if want := fmt.Sprintf(" 08:00 %d emails, ", i%2+1); !strings.Contains(text, want) {
			t.Errorf("digest %d is %q, want %q", i, text, want)
		}
	}
}

// While the sheet is broken the whole group stands still. Then every email gets its row.
func TestTheSheetIsBroken(t *testing.T) {
	t.Parallel()
	d := newDesk(t, time.Hour)
	d.broken = errors.New("the sheet is locked")
	d.receive(12)
	d.env.Advance(2 * time.Hour)
	pauses, err := admin.New(d.client).Pauses.List(t.Context())
	if err != nil || len(pauses) != 1 || pauses[0].Target != (admin.Target{Group: group}) ||
		!strings.Contains(pauses[0].Reason, ToSheet.Name()) {
		t.Fatalf("pauses: %+v, %v", pauses, err)
	}
	d.receive(3)
	d.env.Advance(2 * time.Hour)
	d.mustWrite(t)

	d.broken = nil
	if err := admin.New(d.client).Pauses.End(t.Context(), pauses[0].Target); err != nil {
		t.Fatal(err)
	}
	d.env.Advance(2 * time.Hour)
	if len(d.rows) != 15 || d.writes[0] != 10 {
		t.Errorf("rows: %q, written as %v", d.rows, d.writes)
	}
}

func TestMain(m *testing.M) { kagzitest.Main(m) }

package store

import (
	"errors"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

func TestApart(t *testing.T) {
	t.Parallel()
	answer := func(severity, code string) error { return &pgconn.PgError{SeverityUnlocalized: severity, Code: code} }
	for name, c := range map[string]struct {
		bad        []int
		err        error
		whole      bool // the error is not about a single item
		done       []int
		apart      []int
		mostCalls  int
		returnsErr bool
	}{
		"NoneFails": {done: []int{1, 2, 3, 4, 5}, mostCalls: 1},
		"OneFails": {
			bad: []int{3}, err: answer("ERROR", "XX001"), done: []int{1, 2, 4, 5}, apart: []int{3},
			mostCalls: 8,
		},
		"TwoFail": {
			bad: []int{1, 2}, err: answer("ERROR", "23503"), done: []int{3, 4, 5}, apart: []int{1, 2},
			mostCalls: 8,
		},
		"AllFail": {
			bad: []int{1, 2, 3, 4, 5}, err: answer("ERROR", "58030"), apart: []int{1, 2, 3, 4, 5},
			mostCalls: 11,
		},
		"TheTableFails": {
			bad: []int{1, 2, 3, 4, 5}, whole: true, err: answer("ERROR", "42P01"), mostCalls: 2,
			returnsErr: true,
		},
		"TheServerStops": {bad: []int{3}, err: answer("FATAL", "57P01"), mostCalls: 1, returnsErr: true},
		"NoRights":       {bad: []int{3}, err: answer("ERROR", "42501"), mostCalls: 1, returnsErr: true},
		"NoAnswer":       {bad: []int{3}, err: errors.New("conn closed"), mostCalls: 1, returnsErr: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var done, apart []int
			calls := 0
			err := Isolate([]int{1, 2, 3, 4, 5}, func(items []int) error {
				calls++
				if c.whole || slices.ContainsFunc(items, func(i int) bool { return slices.Contains(c.bad, i) }) {
					return c.err
				}
				done = append(done, items...)
				return nil
			}, func(i int, err error) {
				apart = append(apart, i)
				if !errors.Is(err, c.err) {
					t.Errorf("%d failed with %v", i, err)
				}
			})
			if !slices.Equal(done, c.done) || !slices.Equal(apart, c.apart) || (err != nil) != c.returnsErr ||
				calls > c.mostCalls {
				t.Errorf("done %v, apart %v, error %v, after %d calls", done, apart, err, calls)
			}
		})
	}
}

// What a Halving could not send comes back in its order: an item that is put off, and those after it.
func TestHalvingReturnsWhatIsLeft(t *testing.T) {
	t.Parallel()
	refused, away := errors.New("refused"), errors.New("away")
	for name, c := range map[string]struct {
		bad        []int // they are refused
		silent     int   // after it, no answer comes any more; zero: never
		most       int   // how many may fail alone
		done, left []int
		err        error
	}{
		"NoneFails":      {done: []int{1, 2, 3, 4, 5, 6}},
		"OneFails":       {bad: []int{4}, most: 2, done: []int{1, 2, 3, 5, 6}},
		"TooManyFail":    {bad: []int{2, 3, 4}, most: 2, done: []int{1}, left: []int{4, 5, 6}, err: refused},
		"NoAnswer":       {bad: []int{1}, silent: 3, most: 2, done: []int{2, 3}, left: []int{4, 5, 6}, err: away},
		"NoAnswerAtOnce": {silent: -1, left: []int{1, 2, 3, 4, 5, 6}, err: away},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var done []int
			failed := 0
			h := Halving[int]{
				Try: func(items []int) ([]int, error) {
					switch {
					case c.silent != 0 && slices.Max(items) > max(c.silent, 0) && (c.silent < 0 || len(done) > 0):
						return items, away
					case slices.ContainsFunc(items, func(i int) bool { return slices.Contains(c.bad, i) }):
						return items, refused
					}
					done = append(done, items...)
					return items, nil
				},
				Divides: func(err error) bool { return errors.Is(err, refused) },
				Alone: func(_ int, err error) ([]int, error) {
					if failed++; failed == c.most {
						return nil, err
					}
					return nil, nil
				},
			}
			left, err := h.Send([]int{1, 2, 3, 4, 5, 6})
			if !slices.Equal(done, c.done) || !slices.Equal(left, c.left) || !errors.Is(err, c.err) {
				t.Errorf("done %v, left %v, error %v", done, left, err)
			}
		})
	}
}

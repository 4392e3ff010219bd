package kagzitest_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/kagzitest"
)

// Windows close by the clock that Advance moves.
func TestAdvanceClosesWindows(t *testing.T) {
	t.Parallel()
	env := kagzitest.New(t)
	index := kagzi.Define[string, string]("index")
	write := kagzi.Define[[]string, string]("write", kagzi.Batch{Within: time.Hour})
	report := kagzi.Define[int, int]("report", kagzi.OncePer(24*time.Hour))
	kagzi.Handle(env.Worker, index, func(_ kagzi.Context, text string) (string, error) { return text, nil })
	kagzi.Handle(env.Worker, write, func(_ kagzi.Context, rows []string) (string, error) {
		return strings.Join(rows, "+"), nil
	})
	kagzi.Handle(env.Worker, report, func(_ kagzi.Context, n int) (int, error) { return n, nil })

	typed := kagzi.Debounce{Key: "doc", Delay: time.Minute, Max: 3 * time.Minute}
	var first *kagzi.Run[string]
	var batch []*kagzi.Run[string]
	for i := range 4 {
		run := kagzitest.Start(env, index, fmt.Sprint("text ", i), typed)
		if first == nil {
			first = run
		}
		item, err := kagzi.StartItem(t.Context(), env.Client, write, fmt.Sprint(i))
		if err != nil {
			t.Fatal(err)
		}
		batch = append(batch, item)
		if run.ID() != first.ID() || item.ID() != batch[0].ID() {
			t.Errorf("start %d has another run", i)
		}
		env.Advance(50 * time.Second)
	}
	if out, err := kagzitest.Result(env, first); out != "text 3" || err != nil {
		t.Error(out, err)
	}
	if run := kagzitest.Start(env, index, "later", typed); run.ID() == first.ID() {
		t.Error("the run that has ended got another input")
	}
	if out, err := kagzitest.Result(env, batch[0]); out != "0+1+2+3" || err != nil {
		t.Error(out, err)
	}

	for day := range 3 {
		for range 2 {
			if out, err := kagzitest.Result(env, kagzitest.Start(env, report, day, kagzi.ID("report"))); out != day ||
				err != nil {
				t.Errorf("day %d: %d, %v", day, out, err)
			}
		}
		env.Advance(25 * time.Hour)
	}
}

package test

import (
	"context"
	"strconv"
	"testing"

	"github.com/chromedp/cdproto/input"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/ui"
)

// mouse moves the mouse to a place of the timeline's track, in percents of its width, or presses or releases its button
// there.
func (tb *tab) mouse(what input.DispatchMouseEventType, percent float64) {
	tb.t.Helper()
	box := eval[[]float64](tb,
		`((b) => [b.left, b.top, b.width, b.height])(document.querySelector("#gantt .track").getBoundingClientRect())`)
	button := input.MouseButtonLeft
	call(tb, input.DispatchMouseEvent, input.DispatchMouseEventParams{
		Type: what, X: box[0] + box[2]*percent/100,
		Y: box[1] + box[3]/2, Button: button, ClickCount: 1,
	})
}

// drag drags over the timeline.
func (tb *tab) drag(from, to float64) {
	tb.t.Helper()
	eval[bool](tb, `(document.querySelector("#gantt").scrollIntoView({block: "center"}), true)`)
	tb.mouse(input.DispatchMouseEventTypeMousePressed, from)
	tb.mouse(input.DispatchMouseEventTypeMouseMoved, (from+to)/2)
	tb.mouse(input.DispatchMouseEventTypeMouseMoved, to)
	if !eval[bool](tb, `!!document.querySelector("#gantt .drag-box")`) {
		tb.t.Error("nobody sees what is dragged over")
	}
	tb.mouse(input.DispatchMouseEventTypeMouseReleased, to)
}

// window is how long the time is that the timeline shows, in milliseconds.
const window = `((s) => s.at(-1)[3] - s[0][2])(JSON.parse(document.querySelector("#gantt").dataset.scale))`

func TestTimelineIsZoomed(t *testing.T) {
	k, tb := begin(t, ui.Config{})
	kit.Serve(k, idle, func(ctx kagzi.Context, in string) (string, error) {
		for _, name := range []string{"first", "second", "third"} {
			if err := kagzi.Do(ctx, name, func(context.Context) error { return nil }); err != nil {
				return "", err
			}
		}
		return in, nil
	})
	run := kit.Begin(k, idle, "x")
	kit.ResultOf(k, run)
	tb.open(path("runs", string(run.ID())) + "?scale=true")
	eval[bool](tb, mark)
	whole := eval[float64](tb, window)
	shorter := func(than float64) float64 {
		t.Helper()
		tb.until(window + ` < ` + number(than*0.99))
		return eval[float64](tb, window)
	}
	tb.drag(20, 60)
	half := shorter(whole)
	if half < whole*0.3 || half > whole*0.5 {
		t.Errorf("40 %% of the time are %.3f of %.3f ms", half, whole)
	}
	tb.drag(70, 30) // backwards, too
	small := shorter(half)
	tb.drag(50, 50.1) // a click
	tb.press("+")
	smaller := shorter(small)
	tb.press("-")
	tb.until(window + ` > ` + number(smaller*1.01))
	tb.press("]")
	tb.until(`location.search.includes("from=")`)
	tb.press("[")
	tb.press("0")
	tb.until(window + ` === ` + number(whole))
	eval[bool](tb, `(history.back(), true)`)
	tb.until(window + ` < ` + number(whole*0.99))
	tb.click("#zoom-all")
	tb.until(window + ` === ` + number(whole))
	tb.click("#zoom-plus")
	shorter(whole)
	tb.same()
}

// number returns a JavaScript literal.
func number(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

package kagzi

import (
	"strings"
	"testing"
)

// The error of a run that was undone says why it was cancelled, as that of one that had nothing to undo.
func TestReasonInTheError(t *testing.T) {
	for _, undone := range []bool{false, true} {
		t.Run(map[bool]string{false: "Plain", true: "Undone"}[undone], func(t *testing.T) {
			k := newKit(t)
			wf := Define[int, int]("wf")
			serve(k, wf, func(ctx Context, _ int) (int, error) {
				if undone {
					undoLine(ctx, &journal{}, "it")
				}
				return 0, sleepLong(ctx)
			})
			run := begin(k, wf, 1)
			k.waitStatus(run.ID(), StatusSleeping)
			if err := run.Cancel(k.ctx, Reason("the customer asked")); err != nil {
				t.Fatal(err)
			}
			_, err := run.Result(k.ctx)
			if err == nil || !strings.HasSuffix(err.Error(), "cancelled: the customer asked") {
				t.Errorf("got %v", err)
			}
		})
	}
}

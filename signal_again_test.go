package kagzi

import (
	"context"
	"errors"
	"testing"
)

// TestSignalFromAStepToAnotherHolder has a step send to an ID, and fail: when it is tried again another run has the ID,
// which is not sent what the first one got.
func TestSignalFromAStepToAnotherHolder(t *testing.T) {
	k := newKit(t)
	to, from := Define[struct{}, string]("to"), Define[struct{}, int]("from")
	first := begin(k, to, struct{}{}, ID("target"))
	var second *Run[string]
	serve(k, from, func(ctx Context, _ struct{}) (int, error) {
		return 1, Do(ctx, "send", func(c context.Context) error {
			if err := k.c.Signal(c, ID("target"), approved.With("paid")); err != nil {
				return err
			}
			if CurrentStep(c).Attempt > 1 {
				return nil
			}
			if err := first.Cancel(c); err != nil {
				return err
			}
			second = begin(k, to, struct{}{}, ID("target"))
			return errors.New("again")
		}, soon)
	})
	resultOf(k, begin(k, from, struct{}{}))
	if n := k.count(`SELECT count(*) FROM kagzi.signals WHERE run_id = $1`, string(second.ID())); n != 0 {
		t.Errorf("the run that has the ID now got %d messages, which were sent to another", n)
	}
	if n := k.count(unread); n != 1 {
		t.Errorf("%d messages, want the one", n)
	}
}

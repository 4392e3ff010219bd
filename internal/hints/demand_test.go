package hints

import (
	"testing"
	"testing/synctest"
	"time"
)

// A process says every second that it waits, unless another does, and one that has heard it goes by that for 3 s.
func TestDemandIsSaidAgainBeforeItIsForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d demand
		if d.lately() {
			t.Error("a process waits, but none has said so")
		}
		for range 3 {
			if !d.says() {
				t.Error("it does not say that it waits")
			}
			d.hear()
			time.Sleep(sayEvery - time.Millisecond)
			if d.says() {
				t.Error("it says again that it waits too soon")
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(saidFor - sayEvery - time.Millisecond)
		if !d.lately() {
			t.Error("it is forgotten too soon that a process waits")
		}
		time.Sleep(time.Millisecond)
		if d.lately() {
			t.Error("a process that has not said so for 3 s still waits")
		}
		if d.connected(); !d.lately() || !d.says() {
			t.Error("a process that has only connected takes another for one that has said that it waits")
		}
	})
}

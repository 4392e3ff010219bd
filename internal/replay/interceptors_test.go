package replay

import (
	"testing"
	"testing/synctest"
	"time"
)

// The end of an execution waits for its interceptors, but not for ever.
func TestInterceptionIsPatient(t *testing.T) {
	for _, tt := range []struct {
		name                    string
		enters, leaves, returns bool
		after                   time.Duration
	}{
		{"NeverEntered", false, false, false, 0},
		{"LeftBefore", true, true, false, 0},
		{"Returns", true, false, true, time.Second},
		{"Stuck", true, false, false, interceptGrace},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := &interception{over: make(chan struct{})}
				begun, ended := time.Now(), 0
				var at time.Duration
				end := func() { at = time.Since(begun); ended++ }
				if tt.enters {
					if x.enter() != enteredNow || x.enter() != enteredBefore {
						t.Error("it lets the function begin once")
					}
				}
				if tt.leaves {
					x.leave()
				}
				x.settle(end)
				select {
				case <-x.over:
				default:
					t.Error("next would not return")
				}
				if tt.returns {
					time.Sleep(time.Second)
					if entered, settled := x.leave(); !entered || !settled {
						t.Error("it does not know its state")
					}
					x.conclude(end)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if ended != 1 || at != tt.after {
					t.Errorf("ended %d times, after %v", ended, at)
				}
				if !tt.enters && x.enter() != settledBefore {
					t.Error("the function may begin after the end")
				}
			})
		})
	}
}

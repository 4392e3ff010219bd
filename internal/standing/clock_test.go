package standing

import (
	"testing"
	"time"
)

// clockOf returns a clock, and a function that gives it a reply: when it was sent, how long it took, and which time it
// said.
func clockOf() (c *Clock, reply func(sent, took, said time.Duration) (jumped bool)) {
	begun := time.Now()
	database := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	c = &Clock{}
	return c, func(sent, took, said time.Duration) bool {
		return c.Set(database.Add(said), begun.Add(sent), begun.Add(sent+took))
	}
}

func TestClockSaysWhenItWasSetForward(t *testing.T) {
	t.Parallel()
	c, reply := clockOf()
	if reply(0, 0, 0) {
		t.Error("the first answer is a jump")
	}
	jump := c.Jump()
	if reply(time.Second, 0, time.Second+clockJump/2) {
		t.Error("an answer that is a little ahead is a jump")
	}
	if reply(2*time.Second, 0, -time.Hour) {
		t.Error("a clock that was set back has jumped")
	}
	select {
	case <-jump:
		t.Fatal("a jump is reported that did not happen")
	default:
	}
	if !reply(3*time.Second, 0, time.Hour) {
		t.Error("an hour ahead is no jump")
	}
	<-jump
	select {
	case <-c.Jump():
		t.Error("the last jump is reported again")
	default:
	}
}

// TestLateReplyDoesNotTurnTheClockBack checks that the estimate follows a clock of the database that was set back, and
// does not follow a reply that merely took long.
func TestLateReplyDoesNotTurnTheClockBack(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name             string
		sent, took, said time.Duration // of the second reply; the first was sent and came at 0, and said 0
		at, want         time.Duration // the estimate then
	}{
		{
			"Prompt", 10 * time.Second, time.Millisecond, 10*time.Second + time.Millisecond, 11 * time.Second,
			11 * time.Second,
		},
		{"Late", 10 * time.Second, 20 * time.Second, 10 * time.Second, 40 * time.Second, 40 * time.Second},
		{"LateAndSentBefore", -time.Second, 20 * time.Second, -time.Second, 40 * time.Second, 40 * time.Second},
		{
			"SentBeforeTheClockWasSetForward", -time.Second, 2 * time.Second, -time.Hour, 2 * time.Second,
			2 * time.Second,
		},
		{
			"SetBack", 10 * time.Second, time.Millisecond, time.Millisecond - time.Hour, 11 * time.Second,
			time.Second - time.Hour,
		},
		{"SetBackAndLate", 10 * time.Second, 20 * time.Second, -time.Hour, 31 * time.Second, time.Second - time.Hour},
		{"ALittleAhead", 10 * time.Second, 0, 10*time.Second + time.Millisecond, 11 * time.Second, 11*time.Second +
			time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, reply := clockOf()
			reply(0, 0, 0)
			begun, database := c.received, c.database
			reply(tt.sent, tt.took, tt.said)
			if got := c.database.Add(begun.Add(tt.at).Sub(c.received)).Sub(database); got != tt.want {
				t.Errorf("the estimate at %v is %v, want %v", tt.at, got, tt.want)
			}
		})
	}
}

package alerts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

const (
	firstBackoff   = time.Second
	longestBackoff = time.Minute
	sendTimeout    = 30 * time.Second

	// mostCalls is how many calls of a notifier may be under way in a process.
	mostCalls = 10
)

// A sender calls one notifier.
type sender struct {
	name  string
	to    Notifier
	calls chan struct{} // has an element for each call that is under way
}

func newSenders(cfg Config) map[string]*sender {
	all := make(map[string]*sender, len(cfg.Notifiers))
	for name, to := range cfg.Notifiers {
		all[name] = &sender{name, to, make(chan struct{}, mostCalls)}
	}
	return all
}

// send calls the notifier in a goroutine of its own: one that panics, or does not return, harms no other. Its errors
// have no kind, so that each is worth another attempt.
func (s *sender) send(ctx context.Context, a Alert) error {
	select {
	case s.calls <- struct{}{}:
	default:
		return fmt.Errorf("%d calls of the notifier %q have not returned yet", mostCalls, s.name)
	}
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		err := errors.New("Notify has ended its goroutine")
		defer func() {
			if r := recover(); r != nil {
				err = fmt.Errorf("panic: %v", r)
			}
			<-s.calls
			done <- err
		}()
		err = s.to.Notify(ctx, a)
	}()
	select {
	case err := <-done:
		if err != nil {
			return errors.New(err.Error())
		}
		return nil
	case <-ctx.Done():
		return errors.New("Notify has not returned in time")
	}
}

// insist sends an alert, and tries again until it succeeds, a day is over, or ctx ends.
func (s *sender) insist(ctx context.Context, a Alert, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, 24*time.Hour)
	defer cancel()
	for backoff := firstBackoff; ctx.Err() == nil; backoff = min(2*backoff, longestBackoff) {
		err := s.send(ctx, a)
		if err == nil {
			return
		}
		log.Warn("kagzi: alerts: an alert was not sent, and is tried again", "alert", a.ID, "error", err)
		pause(ctx, backoff)
	}
}

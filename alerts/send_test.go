package alerts

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/kind"
)

func senderOf(f Func) *sender {
	return newSenders(Config{Notifiers: map[string]Notifier{"test": f}})["test"]
}

// Whatever a notifier does, its error is worth another attempt.
func TestErrorsOfNotifiers(t *testing.T) {
	t.Parallel()
	permanent := kagzi.Permanent(errors.New("gone"))
	for want, f := range map[string]Func{
		"gone":                           func(context.Context, Alert) error { return permanent },
		"panic: broken":                  func(context.Context, Alert) error { panic("broken") },
		"Notify has ended its goroutine": func(context.Context, Alert) error { runtime.Goexit(); return nil },
	} {
		err := senderOf(f).send(t.Context(), sample())
		if err == nil || !strings.Contains(err.Error(), want) || kagzi.KindOf(err) != kind.Unknown {
			t.Errorf("%v of kind %s, want %s", err, kagzi.KindOf(err), want)
		}
	}
	if err := senderOf(func(context.Context, Alert) error { return nil }).send(t.Context(), sample()); err != nil {
		t.Error(err)
	}
}

// A notifier that does not return holds up its own alerts only, and so many.
func TestANotifierThatHangs(t *testing.T) {
	t.Parallel()
	release, begun := make(chan struct{}), make(chan struct{}, 2*mostCalls)
	s := senderOf(func(context.Context, Alert) error {
		begun <- struct{}{}
		<-release
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error, mostCalls)
	for range mostCalls {
		go func() { errs <- s.send(ctx, sample()) }()
		await.Receive(t, begun)
	}
	if err := s.send(ctx, sample()); err == nil || !strings.Contains(err.Error(), "10 calls") {
		t.Errorf("one more call: %v", err)
	}
	cancel()
	for range mostCalls {
		if err := await.Receive(t, errs); err == nil || !strings.Contains(err.Error(), "in time") {
			t.Errorf("a call that hangs: %v", err)
		}
	}
	close(release)
	await.True(t, "the calls have returned", func() bool { return len(s.calls) == 0 })
	if err := s.send(t.Context(), sample()); err != nil {
		t.Error(err)
	}
}

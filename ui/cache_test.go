package ui

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kagzi/kagzi/kind"
)

func TestCacheSharesALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c cache
		looks := 0
		do := func(context.Context) (any, error) {
			looks++
			time.Sleep(50 * time.Millisecond)
			return looks, nil
		}
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if f := c.get(t.Context(), "k", time.Second, do); f.view != 1 || f.err != nil {
					t.Errorf("a viewer got %v", f)
				}
			})
		}
		all.Wait()
		if looks != 1 {
			t.Errorf("50 viewers cost %d looks", looks)
		}
		time.Sleep(999 * time.Millisecond)
		c.get(t.Context(), "k", time.Second, do)
		if looks != 1 {
			t.Error("it was looked again within a second")
		}
		time.Sleep(time.Millisecond)
		if f := c.get(t.Context(), "k", time.Second, do); f.view != 2 {
			t.Errorf("after a second there is %v", f)
		}
	})
}

func TestCacheLooksLessOftenIfThatTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c cache
		looks := 0
		slow := func(context.Context) (any, error) {
			looks++
			time.Sleep(time.Second)
			return looks, nil
		}
		c.get(t.Context(), "k", time.Second, slow)
		time.Sleep(time.Second)
		if f := c.get(t.Context(), "k", time.Second, slow); f.view != 2 {
			t.Errorf("after one slow look: %v", f)
		}
		time.Sleep(19 * time.Second)
		if f := c.get(t.Context(), "k", time.Second, slow); f.view != 2 {
			t.Errorf("after 19 seconds: %v", f)
		}
		time.Sleep(time.Second)
		if f := c.get(t.Context(), "k", time.Second, slow); f.view != 3 {
			t.Errorf("after 20 seconds: %v", f)
		}
	})
}

// The look that is under way when an outage ends has waited for that, so it says nothing about the next one.
func TestCacheIsFreshAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c cache
		looks := 0
		do := func(ctx context.Context) (any, error) {
			looks++
			wait := map[int]time.Duration{2: 2 * lookTimeout, 3: lookTimeout - time.Millisecond}[looks]
			select {
			case <-time.After(wait):
				return looks, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		for want := range 5 {
			c.get(t.Context(), "k", time.Second, do)
			if looks != want+1 {
				t.Errorf("%d looks, not %d", looks, want+1)
			}
			time.Sleep(map[bool]time.Duration{true: lookTimeout, false: time.Second}[looks == 2])
		}
	})
}

// Whoever asks after a change does not get what was looked up before it, even if that look is still under way.
func TestCacheShowsChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c cache
		value := "old"
		do := func(context.Context) (any, error) {
			defer time.Sleep(time.Second)
			return value, nil
		}
		before := make(chan found, 1)
		go func() { before <- c.get(t.Context(), "k", time.Minute, do) }()
		synctest.Wait()
		value = "new"
		c.expire()
		if f := c.get(t.Context(), "k", time.Minute, do); f.view != "new" {
			t.Errorf("after the change: %v", f)
		}
		if f := <-before; f.view != "old" {
			t.Errorf("before the change: %v", f)
		}
		if f := c.get(t.Context(), "k", time.Minute, func(context.Context) (any, error) {
			return "newest", nil
		}); f.view != "new" {
			t.Errorf("soon after: %v", f)
		}
	})
}

func TestCacheKeepsTheLastAnswerInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c cache
		began := time.Now()
		var err error
		do := func(context.Context) (any, error) {
			if err != nil {
				return nil, err
			}
			return "good", nil
		}
		look := func() found {
			time.Sleep(time.Second)
			return c.get(t.Context(), "k", time.Second, do)
		}
		look()
		err = fmt.Errorf("connection: %w", kind.Unavailable)
		look()
		if f := look(); f.view != "good" || f.err == nil || !f.at.Equal(began.Add(time.Second)) ||
			!f.since.Equal(began.Add(2*time.Second)) {
			t.Errorf("in an outage: %+v", f)
		}
		err = nil
		if f := look(); f.err != nil || f.view != "good" || !f.since.IsZero() {
			t.Errorf("afterwards: %+v", f)
		}
		err = kind.NotFound
		if f := look(); f.view != nil || f.err == nil {
			t.Errorf("what is not there any more: %+v", f)
		}
	})
}

func TestCacheTriesAgainSoonAfterATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c cache
		c.get(t.Context(), "k", time.Second, func(ctx context.Context) (any, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		time.Sleep(lookTimeout)
		if f := c.get(t.Context(), "k", time.Second, func(context.Context) (any, error) {
			return 1, nil
		}); f.view != 1 {
			t.Errorf("after a timeout: %v", f)
		}
	})
}

func TestCacheWaitEndsWithTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c cache
		slow := func(ctx context.Context) (any, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		first := make(chan found, 1)
		go func() { first <- c.get(t.Context(), "k", time.Second, slow) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if f := c.get(ctx, "k", time.Second, slow); !errors.Is(f.err, context.DeadlineExceeded) {
			t.Errorf("the caller got %v", f)
		}
		began := time.Now()
		if f := <-first; !errors.Is(f.err, context.DeadlineExceeded) || time.Since(began) != lookTimeout-time.Second {
			t.Errorf("the look ended after %v with %v", time.Since(began), f)
		}
	})
}

func TestCacheIsBounded(t *testing.T) {
	var c cache
	for n := range 3 * maxEntries {
		c.get(t.Context(), fmt.Sprint(n), time.Hour, func(context.Context) (any, error) { return n, nil })
	}
	if len(c.entries) != maxEntries {
		t.Errorf("there are %d entries", len(c.entries))
	}
	if c.peek(fmt.Sprint(3*maxEntries-1)).view == nil {
		t.Error("the newest entry is missing")
	}
}

func TestCacheOutlivesAPanic(t *testing.T) {
	var c cache
	func() {
		defer func() { _ = recover() }()
		c.get(t.Context(), "k", 0, func(context.Context) (any, error) { panic("bug") })
	}()
	c.entries["k"].tried = time.Time{}
	if f := c.get(t.Context(), "k", 0, func(context.Context) (any, error) { return 1, nil }); f.view != 1 {
		t.Errorf("after a panic: %v", f)
	}
}

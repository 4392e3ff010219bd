package web

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kagzi/kagzi/kind"
)

func TestCacheSharesALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Cache
		looks := 0
		do := func(context.Context) (any, error) {
			looks++
			time.Sleep(50 * time.Millisecond)
			return looks, nil
		}
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if f := c.Get(t.Context(), "k", time.Second, do); f.View != 1 || f.Err != nil {
					t.Errorf("a viewer got %v", f)
				}
			})
		}
		all.Wait()
		if looks != 1 {
			t.Errorf("50 viewers cost %d looks", looks)
		}
		time.Sleep(999 * time.Millisecond)
		c.Get(t.Context(), "k", time.Second, do)
		if looks != 1 {
			t.Error("it was looked again within a second")
		}
		time.Sleep(time.Millisecond)
		if f := c.Get(t.Context(), "k", time.Second, do); f.View != 2 {
			t.Errorf("after a second there is %v", f)
		}
	})
}

func TestCacheLooksLessOftenIfThatTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Cache
		looks := 0
		slow := func(context.Context) (any, error) {
			looks++
			time.Sleep(time.Second)
			return looks, nil
		}
		c.Get(t.Context(), "k", time.Second, slow)
		time.Sleep(time.Second)
		if f := c.Get(t.Context(), "k", time.Second, slow); f.View != 2 {
			t.Errorf("after one slow look: %v", f)
		}
		time.Sleep(19 * time.Second)
		if f := c.Get(t.Context(), "k", time.Second, slow); f.View != 2 {
			t.Errorf("after 19 seconds: %v", f)
		}
		time.Sleep(time.Second)
		if f := c.Get(t.Context(), "k", time.Second, slow); f.View != 3 {
			t.Errorf("after 20 seconds: %v", f)
		}
	})
}

// The look that is under way when an outage ends has waited for that, so it says nothing about the next one.
func TestCacheIsFreshAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Cache
		looks := 0
		do := func(ctx context.Context) (any, error) {
			looks++
			wait := map[int]time.Duration{2: 2 * LookTimeout, 3: LookTimeout - time.Millisecond}[looks]
			select {
			case <-time.After(wait):
				return looks, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		for want := range 5 {
			c.Get(t.Context(), "k", time.Second, do)
			if looks != want+1 {
				t.Errorf("%d looks, not %d", looks, want+1)
			}
			time.Sleep(map[bool]time.Duration{true: LookTimeout, false: time.Second}[looks == 2])
		}
	})
}

// A viewer who asks after a change does not get what was looked up before it, even if that look is still under way.
func TestCacheShowsChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Cache
		value := "old"
		do := func(context.Context) (any, error) {
			defer time.Sleep(time.Second)
			return value, nil
		}
		before := make(chan Found, 1)
		go func() { before <- c.Get(t.Context(), "k", time.Minute, do) }()
		synctest.Wait()
		value = "new"
		c.Expire()
		if f := c.Get(t.Context(), "k", time.Minute, do); f.View != "new" {
			t.Errorf("after the change: %v", f)
		}
		if f := <-before; f.View != "old" {
			t.Errorf("before the change: %v", f)
		}
		if f := c.Get(t.Context(), "k", time.Minute, func(context.Context) (any, error) {
			return "newest", nil
		}); f.View != "new" {
			t.Errorf("soon after: %v", f)
		}
	})
}

func TestCacheKeepsTheLastAnswerInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Cache
		began := time.Now()
		var err error
		do := func(context.Context) (any, error) {
			if err != nil {
				return nil, err
			}
			return "good", nil
		}
		look := func() Found {
			time.Sleep(time.Second)
			return c.Get(t.Context(), "k", time.Second, do)
		}
		look()
		err = fmt.Errorf("connection: %w", kind.Unavailable)
		look()
		if f := look(); f.View != "good" || f.Err == nil || !f.At.Equal(began.Add(time.Second)) ||
			!f.Since.Equal(began.Add(2*time.Second)) {
			t.Errorf("in an outage: %+v", f)
		}
		err = nil
		if f := look(); f.Err != nil || f.View != "good" || !f.Since.IsZero() {
			t.Errorf("afterwards: %+v", f)
		}
		err = kind.NotFound
		if f := look(); f.View != nil || f.Err == nil {
			t.Errorf("what is not there any more: %+v", f)
		}
	})
}

func TestCacheTriesAgainSoonAfterATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Cache
		c.Get(t.Context(), "k", time.Second, func(ctx context.Context) (any, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		time.Sleep(LookTimeout)
		if f := c.Get(t.Context(), "k", time.Second, func(context.Context) (any, error) {
			return 1, nil
		}); f.View != 1 {
			t.Errorf("after a timeout: %v", f)
		}
	})
}

func TestCacheWaitEndsWithTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Cache
		slow := func(ctx context.Context) (any, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		first := make(chan Found, 1)
		go func() { first <- c.Get(t.Context(), "k", time.Second, slow) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if f := c.Get(ctx, "k", time.Second, slow); !errors.Is(f.Err, context.DeadlineExceeded) {
			t.Errorf("the caller got %v", f)
		}
		began := time.Now()
		if f := <-first; !errors.Is(f.Err, context.DeadlineExceeded) || time.Since(began) != LookTimeout-time.Second {
			t.Errorf("the look ended after %v with %v", time.Since(began), f)
		}
	})
}

func TestCacheIsBounded(t *testing.T) {
	var c Cache
	for n := range 3 * maxEntries {
		c.Get(t.Context(), fmt.Sprint(n), time.Hour, func(context.Context) (any, error) { return n, nil })
	}
	if len(c.entries) != maxEntries {
		t.Errorf("there are %d entries", len(c.entries))
	}
	if c.Peek(fmt.Sprint(3*maxEntries-1)).View == nil {
		t.Error("the newest entry is missing")
	}
}

func TestCacheOutlivesAPanic(t *testing.T) {
	var c Cache
	func() {
		defer func() { _ = recover() }()
		c.Get(t.Context(), "k", 0, func(context.Context) (any, error) { panic("bug") })
	}()
	c.entries["k"].tried = time.Time{}
	if f := c.Get(t.Context(), "k", 0, func(context.Context) (any, error) { return 1, nil }); f.View != 1 {
		t.Errorf("after a panic: %v", f)
	}
}

func TestFewLooksAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Cache
		var under, most, busy atomic.Int64
		look := func(ctx context.Context) (any, error) {
			// A look within a look is a part of it.
			f := c.Get(ctx, "within"+fmt.Sprint(under.Load()), time.Hour, func(context.Context) (any, error) {
				return 1, nil
			})
			for n := under.Add(1); n > most.Load(); {
				most.Store(n)
			}
			time.Sleep(time.Second)
			under.Add(-1)
			return f.View, f.Err
		}
		for i := range 100 {
			go func() {
				if f := c.Get(t.Context(), fmt.Sprint(i), time.Second, look); errors.Is(f.Err, ErrBusy) && Away(f.Err) {
					busy.Add(1)
				} else if f.View != 1 {
					t.Errorf("a look has found %+v", f)
				}
			}()
		}
		time.Sleep(LookTimeout + time.Second)
		synctest.Wait()
		if most.Load() != mostLooks || under.Load() != 0 {
			t.Errorf("%d looks were under way at once", most.Load())
		}
		if n := busy.Load(); n > 100-5*mostLooks || n < 100-6*mostLooks { // the last four come when the others give up
			t.Errorf("%d of 100 gave up", n)
		}
		if f := c.Get(t.Context(), "later", time.Second, look); f.Err != nil {
			t.Errorf("afterwards: %v", f.Err)
		}
	})
}

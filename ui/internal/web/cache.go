package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kagzi/kagzi/kind"
)

// A Cache shares the answers of looks between all requests. Of the callers that want the same at the same time one
// looks, in its own goroutine, and the others wait for it. It keeps the last good answer, which is shown while the
// database is away.
type Cache struct {
	// Every is how old a shared answer may be. It does not change while requests are answered.
	Every time.Duration
	// Timeout is how long a look may take. It does not change while requests are answered. Zero means LookTimeout.
	Timeout time.Duration
	mu      sync.Mutex
	entries map[string]*entry
	under   chan struct{} // has an element for each look under way; made by the first
}

// NewCache returns an empty cache whose answers are looked up once a second.
func NewCache() *Cache { return &Cache{Every: lookEvery} }

// An entry is what the cache knows of one key. The cache's lock guards its fields.
type entry struct {
	under chan struct{} // closed when the look that is under way has ended; nil if none is
	// the look under way began before a change, so those who ask after the change wait for the next one; set by expire
	early bool
	used  time.Time     // when a viewer asked last
	tried time.Time     // when the last look ended; zero before the first
	last  time.Duration // how long it took; zero if it failed
	// how long looks take: the shorter of the last two, as one may have waited for an outage to end
	cost   time.Duration
	answer Found
}

// A Found is the answer for a key.
type Found struct {
	View  any       // of the last look that succeeded
	At    time.Time // when that was; zero if none did
	Err   error     // of the last look; nil if it succeeded
	Since time.Time // when looks began to fail
}

// known reports whether there is an answer, which may be an old one while the database is away.
func (f Found) known() bool { return f.View != nil && (f.Err == nil || Away(f.Err)) }

// outage says since when the database gives no answer, and why; nil if there is a new one.
func (f Found) outage() *old {
	if f.Err == nil {
		return nil
	}
	return &old{f.At, f.Since, Sentence(f.Err)}
}

// failed returns why the last look has failed; nil if it has not.
func (f Found) failed() error { return f.Err }

// last returns the last good answer, and when it was looked up.
func (f Found) last() (view any, at time.Time) { return f.View, f.At }

// away returns since when looks fail.
func (f Found) away() time.Time { return f.Since }

const (
	lookEvery   = time.Second
	LookTimeout = 5 * time.Second
	// dutyCycle bounds what one view costs: after a look of 100 ms there is none for two seconds.
	dutyCycle = 20
	// mostLooks is how many looks are under way at once: however many different pages are asked for, the client's pool
	// is left to the work.
	mostLooks = 4
	// maxEntries bounds the memory for answers. Beyond it, those that were last asked for the longest ago are dropped.
	maxEntries = 256
)

// ErrBusy ends the wait for other looks.
var ErrBusy = fmt.Errorf("the dashboard was busy with other pages: %w", kind.Unavailable)

// looking is the key of a context within a look.
type looking struct{}

var errPanicked = errors.New("this page has a bug: see the program's log")

// Get returns the answer for the key, which is at most as old as every, or as twenty times what it cost. The end of ctx
// ends only the caller's wait.
func (c *Cache) Get(ctx context.Context, key string, every time.Duration, do func(context.Context) (any, error)) Found {
	for {
		c.mu.Lock()
		e := c.entry(key)
		if !e.tried.IsZero() && time.Since(e.tried) < e.keeps(every) {
			defer c.mu.Unlock()
			return e.answer
		}
		under, early := e.under, e.early
		if under == nil {
			e.under = make(chan struct{})
			c.mu.Unlock()
			return c.look(ctx, e, do)
		}
		c.mu.Unlock()
		select {
		case <-under:
		case <-ctx.Done():
			return Found{Err: ctx.Err()}
		}
		if !early {
			c.mu.Lock()
			defer c.mu.Unlock()
			return e.answer
		}
	}
}

// atLeast returns how old an answer may be whose look says every.
func (c *Cache) atLeast(every time.Duration) time.Duration { return max(c.Every, every) }

// shared is Get for answers of the usual age.
func (c *Cache) shared(ctx context.Context, key string, do func(context.Context) (any, error)) Found {
	return c.Get(ctx, key, c.Every, do)
}

// keeps returns for how long an answer is shared. A look that waited in vain says nothing about the cost, and the
// database may be back. The caller holds the lock.
func (e *entry) keeps(every time.Duration) time.Duration {
	if e.answer.Err != nil {
		return max(every, e.cost)
	}
	return max(every, dutyCycle*e.cost)
}

// Peek returns the answer that is there, however old.
func (c *Cache) Peek(key string) Found {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[key]; e != nil {
		return e.answer
	}
	return Found{}
}

// Expire makes all pages look again, because something was changed.
func (c *Cache) Expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.entries {
		e.tried, e.early = time.Time{}, e.under != nil
	}
}

// look looks on behalf of all who wait, so its context does not end with the caller's.
func (c *Cache) look(ctx context.Context, e *entry, do func(context.Context) (any, error)) (f Found) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cmp.Or(c.Timeout, LookTimeout))
	defer cancel()
	began := time.Now()
	var view any
	err := errPanicked // for those who wait, if do panics
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		f = c.settle(e, began, view, err)
	}()
	leave, ok := c.Enter(ctx)
	if !ok {
		err = ErrBusy
		return f
	}
	defer leave()
	began = time.Now()
	view, err = do(context.WithValue(ctx, looking{}, true))
	return f
}

// Enter waits until fewer than mostLooks are under way. A look within a look is a part of it, and does not wait.
func (c *Cache) Enter(ctx context.Context) (leave func(), ok bool) {
	if ctx.Value(looking{}) != nil {
		return func() {}, true
	}
	c.mu.Lock()
	if c.under == nil {
		c.under = make(chan struct{}, mostLooks)
	}
	c.mu.Unlock()
	select {
	case c.under <- struct{}{}:
		return func() { <-c.under }, true
	case <-ctx.Done():
		return nil, false
	}
}

// settle records the end of a look, and returns the answer. The caller holds the lock.
func (c *Cache) settle(e *entry, began time.Time, view any, err error) Found {
	switch {
	case err == nil:
		e.answer = Found{View: view, At: began}
	case e.answer.Err == nil:
		e.answer.Err, e.answer.Since = err, began
	default:
		e.answer.Err = err
	}
	if err != nil && !Away(err) { // it is not there any more, or no viewer may see it
		e.answer.View, e.answer.At = nil, time.Time{}
	}
	took := time.Since(began)
	if e.tried, e.cost = time.Now(), min(took, e.last); err != nil {
		e.cost, took = took, 0
	}
	if e.last = took; e.early {
		e.tried, e.early = time.Time{}, false
	}
	close(e.under)
	e.under = nil
	return e.answer
}

// entry returns the key's entry, and makes room for it. The caller holds the lock.
func (c *Cache) entry(key string) *entry {
	e := c.entries[key]
	if e == nil {
		if c.entries == nil {
			c.entries = map[string]*entry{}
		}
		for len(c.entries) >= maxEntries && c.dropOldest() {
		}
		e = &entry{}
		c.entries[key] = e
	}
	e.used = time.Now()
	return e
}

// dropOldest drops the entry that was last asked for the longest ago. It reports false if a look is under way for each.
func (c *Cache) dropOldest() bool {
	oldest := ""
	for key, e := range c.entries {
		if e.under == nil && (oldest == "" || e.used.Before(c.entries[oldest].used)) {
			oldest = key
		}
	}
	delete(c.entries, oldest)
	return oldest != ""
}

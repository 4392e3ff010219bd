package web

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"sync"
)

// renderings share the HTML of live regions between the streams of a page, as the cache shares what it shows. Viewers
// with other rights see other buttons: so a rendering remembers what Authorize was asked, and is shown to those for
// whom the answers are the same.
type renderings struct {
	mu   sync.Mutex
	seed maphash.Seed
	by   map[string]*rendered // by the key of the look; none without a stream
}

// A rendered is the renderings of a page. The lock of renderings guards it.
type rendered struct {
	streams int
	stamp   string // of the answers that are shown
	kept    []*rendering
}

// A rendering is the live regions of a page in the order of its names, for all with the same rights.
type rendering struct {
	asked   []Action
	allowed []bool
	regions []liveRegion
}

// A liveRegion is the HTML of a live region, and its hash.
type liveRegion struct {
	html []byte
	sum  uint64
}

// mostRights is how many sorts of viewers share renderings of a page. Others have their own.
const mostRights = 4

// enter counts a stream of the page with the key, whose renderings are kept until it calls leave.
func (r *renderings) enter(key string) (leave func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil {
		r.by, r.seed = map[string]*rendered{}, maphash.MakeSeed()
	}
	page := r.by[key]
	if page == nil {
		page = &rendered{}
		r.by[key] = page
	}
	page.streams++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if page.streams--; page.streams == 0 {
			delete(r.by, key)
		}
	}
}

// find returns the renderings of the answers with the stamp.
func (r *renderings) find(key, stamp string) []*rendering {
	r.mu.Lock()
	defer r.mu.Unlock()
	if page := r.by[key]; page != nil && page.stamp == stamp {
		return page.kept
	}
	return nil
}

// keep shares a rendering.
func (r *renderings) keep(key, stamp string, one *rendering) {
	r.mu.Lock()
	defer r.mu.Unlock()
	page := r.by[key]
	if page == nil {
		return
	}
	if page.stamp != stamp {
		page.stamp, page.kept = stamp, nil
	}
	if len(page.kept) < mostRights {
		page.kept = append(page.kept[:len(page.kept):len(page.kept)], one)
	}
}

// fits reports whether a viewer has the rights of those for whom it was made.
func (r *rendering) fits(may func(Action) bool) bool {
	for i, a := range r.asked {
		if may(a) != r.allowed[i] {
			return false
		}
	}
	return true
}

// of returns the live regions of a page. render renders one of them.
func (r *renderings) of(s *Screen, p Page, render func(to *bytes.Buffer, p Page, name string, s *Screen) error,
) ([]liveRegion, error) {
	key, stamp := s.key(), s.stamp()
	for _, one := range r.find(key, stamp) {
		if one.fits(s.rights()) {
			return one.regions, nil
		}
	}
	one := &rendering{}
	asking := s.asking(func(a Action, ok bool) {
		one.asked, one.allowed = append(one.asked, a), append(one.allowed, ok)
	})
	for _, name := range p.regions() {
		var html bytes.Buffer
		if err := render(&html, p, name, asking); err != nil {
			return nil, fmt.Errorf("region %s: %w", name, err)
		}
		one.regions = append(one.regions, liveRegion{html.Bytes(), maphash.Bytes(r.seed, html.Bytes())})
	}
	r.keep(key, stamp, one)
	return one.regions, nil
}

// event writes the region, unless it was sent last.
func (l liveRegion) event(events *bytes.Buffer, name string, sent map[string]uint64) {
	if sent[name] != l.sum {
		sent[name] = l.sum
		event(events, "region", l.html)
	}
}

package web

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"
)

// looks fill screens with the answers that the cache has or looks up.
type looks struct {
	cache *Cache
	log   *slog.Logger
	out   atomic.Bool // the last look got no answer from the database
}

// fill puts the view model into the screen. If the database is away, that is the last one, and Old says so.
func (l *looks) fill(ctx context.Context, s *Screen, p Page) error {
	f := p.ask(ctx, l.cache, s.query())
	l.heard(ctx, f.failed())
	if f.failed() != nil && !f.known() {
		return f.failed()
	}
	view, at := f.last()
	s.answers(view, at, p.lives(view), f.outage())
	return nil
}

// outage says why there is no answer for the screen.
func (l *looks) outage(s *Screen, err error) *old {
	return &old{Since: l.cache.Peek(s.key()).away(), Err: Sentence(err)}
}

// frameStays is how long a page shows the last answer for a part of the layout without asking again: a stream asks.
const frameStays = time.Minute

// parts puts the parts of the page into the screen. Those that are not there yet come with wait only, but for those of
// the layout, unless the database is away.
func (l *looks) parts(ctx context.Context, s *Screen, p Page, wait bool) {
	for _, part := range p.parts() {
		_, at := l.cache.Peek(part.key(s.query())).last()
		if wait || part.frames() && s.outage() == nil && time.Since(at) > frameStays {
			l.fillPart(ctx, s, part)
		} else {
			l.keepPart(s, part)
		}
	}
}

// keepPart puts the last state of a part into the screen, however old.
func (l *looks) keepPart(s *Screen, p Part) {
	if view, _ := l.cache.Peek(p.key(s.query())).last(); view != nil {
		s.keeps(p.name(), view)
	}
}

// fillPart puts a part into the screen. A part that fails stays as it was: the page's own look shows the trouble with
// the database.
func (l *looks) fillPart(ctx context.Context, s *Screen, p Part) {
	f := p.ask(ctx, l.cache, s.query())
	if err := f.failed(); err != nil && !Away(err) && !errors.Is(err, context.Canceled) {
		l.log.WarnContext(ctx, "kagzi: a part of the dashboard failed", "page", s.key(), "part", p.name(), "err", err)
	}
	if view, at := f.last(); view != nil {
		s.notes(p.name(), view, at)
	}
}

// heard logs the beginning of an outage: pages say little about why there is no connection.
func (l *looks) heard(ctx context.Context, err error) {
	if err == nil {
		l.out.Store(false)
	} else if Away(err) && !l.out.Swap(true) {
		l.log.WarnContext(ctx, "kagzi: the dashboard gets no answer from the database", "err", err)
	}
}

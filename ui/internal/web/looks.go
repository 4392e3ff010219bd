package web

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
)

// looks fill screens with the answers that the cache has or looks up.
type looks struct {
	cache *Cache
	log   *slog.Logger
	out   atomic.Bool // the last look got no answer from the database
}

// fill puts the view model into the screen. If the database is away, that is the last one, and Old says so.
func (l *looks) fill(ctx context.Context, s *Screen, p Page) error {
	f := l.cache.Get(ctx, s.key(), l.cache.Every, func(ctx context.Context) (any, error) {
		return p.Look(ctx, s.Query)
	})
	l.heard(ctx, f.Err)
	if f.Err != nil && (f.View == nil || !Away(f.Err)) {
		return f.Err
	}
	var outage *old
	if f.Err != nil {
		outage = &old{f.At, f.Since, Sentence(f.Err)}
	}
	s.answers(f.View, f.At, p.lives(f.View), outage)
	return nil
}

// outage says why there is no answer for the screen.
func (l *looks) outage(s *Screen, err error) *old {
	return &old{Since: l.cache.Peek(s.key()).Since, Err: Sentence(err)}
}

// parts puts the parts of the page into the screen. Those that are not there yet come with wait only.
func (l *looks) parts(ctx context.Context, s *Screen, p Page, wait bool) {
	for _, part := range p.Parts {
		if wait {
			l.fillPart(ctx, s, part)
		} else {
			l.keepPart(s, part)
		}
	}
}

// keepPart puts what is known of a part into the screen, however old.
func (l *looks) keepPart(s *Screen, p Part) {
	if view := l.cache.Peek(s.key(p.Name)).View; view != nil {
		s.keeps(p.Name, view)
	}
}

// fillPart puts a part into the screen. A part that fails stays as it was: the page's own look says what is wrong with
// the database.
func (l *looks) fillPart(ctx context.Context, s *Screen, p Part) {
	f := l.cache.Get(ctx, s.key(p.Name), p.Every, func(ctx context.Context) (any, error) {
		return p.Look(ctx, s.Query)
	})
	if f.Err != nil && !Away(f.Err) && !errors.Is(f.Err, context.Canceled) {
		l.log.WarnContext(ctx, "kagzi: a part of the dashboard failed", "page", s.key(), "part", p.Name, "err", f.Err)
	}
	if f.View != nil {
		s.notes(p.Name, f.View, f.At)
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

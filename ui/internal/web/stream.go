package web

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// streams counts the streams, and ends them when their server shuts down.
type streams struct {
	mu      sync.Mutex
	most    int
	open    int
	servers map[*http.Server]chan struct{} // closed when the server shuts down
}

const (
	// streamFor is how long a stream lasts. The browser opens another one, for which Authorize is asked again.
	streamFor = 5 * time.Minute
	// quietFor is how long a stream says nothing, so that proxies keep it and a browser that has gone is found.
	quietFor     = 15 * time.Second
	writeTimeout = 10 * time.Second
)

// enter reports whether there is room for another stream. If there is, the caller calls leave at its end, and ends it
// when over is closed.
func (s *streams) enter(r *http.Request) (over <-chan struct{}, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open >= s.most {
		return nil, false
	}
	s.open++
	server, _ := r.Context().Value(http.ServerContextKey).(*http.Server)
	if server == nil {
		return nil, true
	}
	end, known := s.servers[server]
	if !known { // Shutdown waits for requests, and does not end their contexts
		end = make(chan struct{})
		server.RegisterOnShutdown(sync.OnceFunc(func() { close(end) }))
		if s.servers == nil {
			s.servers = map[*http.Server]chan struct{}{}
		}
		s.servers[server] = end
	}
	return end, true
}

func (s *streams) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
}

// A streamer answers with the live regions of pages.
type streamer struct {
	streams   streams
	rendered  renderings
	looks     *looks
	templates *templates
	log       *slog.Logger
}

// serve sends the live regions of a page whenever they have changed. It looks once a second, through the cache, and
// ends with the request.
func (l *streamer) serve(w http.ResponseWriter, r *http.Request, who Viewer, p Page, s *Screen) {
	over, ok := l.streams.enter(r)
	if !ok {
		http.Error(w, "too many pages are live", http.StatusServiceUnavailable)
		return
	}
	defer l.streams.leave()
	defer l.rendered.enter(s.key())()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // nginx would collect the events
	w.WriteHeader(http.StatusOK)
	ctx, cancel := context.WithTimeout(r.Context(), streamFor)
	defer cancel()
	out := newEventWriter(w)
	live := liveScreen{by: l, p: p, s: s, who: who, sent: map[string]uint64{}}
	defer out.close()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for out.write(live.refresh(ctx)) == nil && !live.ended {
		select {
		case <-tick.C:
		case <-over:
			return
		case <-ctx.Done():
			return
		}
	}
}

// A liveScreen is what a stream has sent.
type liveScreen struct {
	by    *streamer
	p     Page
	s     *Screen
	who   Viewer
	sent  map[string]uint64 // the hash of each region as it was sent last
	out   string            // the outage that was sent last; empty if there is none
	ended bool              // nothing follows
}

// refresh looks, and returns the events of the regions that have changed.
func (l *liveScreen) refresh(ctx context.Context) []byte {
	var events bytes.Buffer
	err := l.who.stays()
	if err == nil {
		err = l.by.looks.fill(ctx, l.s, l.p)
	}
	if ctx.Err() != nil {
		return nil
	}
	switch {
	case err != nil && !Away(err): // such as a run that was deleted, or a right that was withdrawn
		event(&events, "gone", []byte(Sentence(err)))
		l.ended = true
		return events.Bytes()
	case err != nil:
		l.outage(&events, l.by.looks.outage(l.s, err))
		return events.Bytes()
	}
	l.outage(&events, l.s.outage())
	l.by.looks.parts(ctx, l.s, l.p, l.s.outage() == nil)
	regions, err := l.by.rendered.of(l.s, l.p, l.by.templates.region)
	if err != nil {
		l.by.log.Error("kagzi: the dashboard cannot show a region", "template", l.p.file(), "err", err)
		l.ended = true
		return nil
	}
	for i, name := range l.p.regions() {
		regions[i].event(&events, name, l.sent)
	}
	if !l.s.lives() {
		event(&events, "settled", nil)
		l.ended = true
	}
	return events.Bytes()
}

// outage says that an outage has begun or ended, or changed its reason.
func (l *liveScreen) outage(events *bytes.Buffer, o *old) {
	text := ""
	if o != nil {
		text = o.event()
	}
	if text == l.out {
		return
	}
	if l.out = text; o == nil {
		event(events, "back", nil)
	} else {
		event(events, "outage", []byte(text))
	}
}

package ui

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
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

// stream sends the live regions of a page whenever they have changed. It looks once a second, through the cache, and
// ends with the request.
func (d *dashboard) stream(w http.ResponseWriter, r *http.Request, who viewer, p page, s *screen) {
	over, ok := d.streams.enter(r)
	if !ok {
		http.Error(w, "too many pages are live", http.StatusServiceUnavailable)
		return
	}
	defer d.streams.leave()
	defer d.rendered.enter(s.Query.url)()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // nginx would collect the events
	w.WriteHeader(http.StatusOK)
	ctx, cancel := context.WithTimeout(r.Context(), streamFor)
	defer cancel()
	out := &eventWriter{w: w, rc: http.NewResponseController(w)}
	l := liveScreen{d: d, p: p, s: s, who: who, sent: map[string]uint64{}}
	defer out.rc.SetWriteDeadline(time.Time{}) //nolint:errcheck // for the next request of the connection
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for out.write(l.refresh(ctx)) == nil && !l.ended {
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
	d     *dashboard
	p     page
	s     *screen
	who   viewer
	sent  map[string]uint64 // the hash of each region as it was sent last
	out   string            // the outage that was sent last; empty if there is none
	ended bool              // nothing follows
}

// refresh looks, and returns the events that say what has changed.
func (l *liveScreen) refresh(ctx context.Context) []byte {
	var events bytes.Buffer
	err := l.who.still()
	if err == nil {
		err = l.d.fill(ctx, l.s, l.p)
	}
	if ctx.Err() != nil {
		return nil
	}
	switch {
	case err != nil && !away(err): // such as a run that was deleted, or a right that was withdrawn
		event(&events, "gone", []byte(sentence(err)))
		l.ended = true
		return events.Bytes()
	case err != nil:
		since := l.d.cache.peek(l.s.Query.url).since
		l.outage(&events, &old{Since: since, Err: sentence(err)})
		return events.Bytes()
	}
	l.outage(&events, l.s.Old)
	for _, part := range l.p.parts {
		if l.s.Old == nil {
			l.d.fillPart(ctx, l.s, part)
		} else {
			l.d.keepPart(l.s, part)
		}
	}
	regions, err := l.d.regions(l.s, l.p)
	if err != nil {
		l.d.log.Error("kagzi: the dashboard cannot show a region", "template", l.p.template, "err", err)
		l.ended = true
		return nil
	}
	for i, name := range l.p.live {
		if sum := regions[i].sum; l.sent[name] != sum {
			l.sent[name] = sum
			event(&events, "region", regions[i].html)
		}
	}
	if !l.s.Live {
		event(&events, "settled", nil)
		l.ended = true
	}
	return events.Bytes()
}

// outage says that an outage has begun or ended, or changed its reason.
func (l *liveScreen) outage(events *bytes.Buffer, o *old) {
	text := ""
	if o != nil {
		said, _ := json.Marshal(map[string]any{"since": o.Since.UTC().Format(time.RFC3339), "text": o.Err}) // strings
		text = string(said)
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

// event writes an event of text/event-stream.
func event(events *bytes.Buffer, name string, data []byte) {
	fmt.Fprintf(events, "event: %s\n", name)
	empty := len(data) == 0
	for len(data) > 0 {
		line := data
		// a carriage return ends a line, too, and what follows would be taken for a field
		if end := bytes.IndexAny(data, "\r\n"); end >= 0 {
			line, data = data[:end], data[end+1:]
		} else {
			data = nil
		}
		events.WriteString("data: ")
		events.Write(line)
		events.WriteString("\n")
	}
	if empty {
		events.WriteString("data:\n")
	}
	events.WriteString("\n")
}

// An eventWriter writes events, each with a deadline, and a sign of life when there has been none for long.
type eventWriter struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	wrote time.Time
}

func (o *eventWriter) write(events []byte) error {
	if len(events) == 0 {
		if time.Since(o.wrote) < quietFor {
			return nil
		}
		events = []byte(":\n\n")
	}
	o.wrote = time.Now()
	_ = o.rc.SetWriteDeadline(o.wrote.Add(writeTimeout)) // not every ResponseWriter has deadlines
	if _, err := o.w.Write(events); err != nil {
		return err
	}
	return o.rc.Flush()
}

package web

import (
	"context"
	"sync"
)

// once makes what a form asks for at most once, however often the form is sent: by a double click, the back button, or
// because the answer was lost. It knows the forms that this process got lately. What protects a change in other
// processes, too, is a matter of each form.
type once struct {
	mu    sync.Mutex
	sent  map[string]*sending
	order []string // of sent, the oldest first
}

// A sending is a form that was sent.
type sending struct {
	done   chan struct{} // closed when answer and err are there
	answer Answer
	err    error
}

// mostSent bounds the memory for forms that were sent.
const mostSent = 512

// do returns the answer of change, which it calls unless the form with that token was sent before and succeeded. A form
// that failed may be sent again.
func (o *once) do(ctx context.Context, token string, change func() (Answer, error)) (Answer, error) {
	if token == "" {
		return change()
	}
	s, first := o.enter(token)
	if !first {
		select {
		case <-s.done:
			return s.answer, s.err
		case <-ctx.Done():
			return Answer{}, ctx.Err()
		}
	}
	s.err = errPanicked // for those who wait, if change panics
	defer func() {
		if s.err != nil || s.answer.again() {
			o.forget(token)
		}
		close(s.done)
	}()
	s.answer, s.err = change()
	return s.answer, s.err
}

// enter returns the sending of the token, and whether the caller is the first who sends it.
func (o *once) enter(token string) (s *sending, first bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s := o.sent[token]; s != nil {
		return s, false
	}
	if o.sent == nil {
		o.sent = map[string]*sending{}
	}
	if len(o.order) >= mostSent {
		delete(o.sent, o.order[0])
		o.order = o.order[1:]
	}
	s = &sending{done: make(chan struct{})}
	o.sent[token] = s
	o.order = append(o.order, token)
	return s, true
}

// forget lets the token's form be sent again.
func (o *once) forget(token string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.sent, token)
	for i, t := range o.order {
		if t == token {
			o.order = append(o.order[:i:i], o.order[i+1:]...)
			return
		}
	}
}

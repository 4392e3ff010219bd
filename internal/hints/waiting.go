package hints

import (
	"errors"
	"sync"
	"time"
)

// The listener costs a connection. So waiters for results open it only after listenAfter of waiting, if no worker or
// coordinator of this process has, and keep it between two waits that are at most lingers apart. Such a pause counts as
// waiting: a process that calls Result again and again listens.
const (
	listenAfter = 300 * time.Millisecond
	lingers     = 5 * time.Second
)

// A waitingListener keeps the listener open for those who wait for results.
type waitingListener struct {
	hints *Hints

	mu      sync.Mutex  // guards the fields below. It is locked after results' mutex, and not while the listener is called.
	waiting bool        // somebody waits. Set by begin, reset by end.
	since   time.Time   // when somebody began to wait, without a pause longer than lingers since
	ended   time.Time   // when end was called last
	release func()      // closes the listener; nil while the waiters do not keep it open. Set by waited, reset by closeIdle.
	idle    *time.Timer // calls closeIdle; nil before the first end with an open listener
}

// begin notes that somebody begins to wait, and end that nobody waits any more.
func (w *waitingListener) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting = true
	if now := time.Now(); now.Sub(w.ended) > lingers {
		w.since = now
	}
	if w.idle != nil {
		w.idle.Stop()
	}
}

func (w *waitingListener) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting, w.ended = false, time.Now()
	if w.release != nil {
		w.idle = time.AfterFunc(lingers, w.closeIdle)
	}
}

// waited opens the listener if somebody has waited for long enough. Only one goroutine calls it, between begin and end.
func (w *waitingListener) waited() {
	w.mu.Lock()
	listen := w.release == nil && time.Since(w.since) > listenAfter && w.hints.listener.users.Load() == 0
	w.mu.Unlock()
	if !listen {
		return
	}
	release := w.hints.Listen()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.release = release
}

func (w *waitingListener) closeIdle() {
	w.mu.Lock()
	release := w.release
	if w.waiting || release == nil {
		w.mu.Unlock()
		return
	}
	w.release = nil
	w.mu.Unlock()
	release()
}

// errNobodyWaits ends an attempt of the listener to connect again.
var errNobodyWaits = errors.New("nobody waits for notifications")

// reconnects returns errNobodyWaits, and has the listener closed, if it is open only because somebody has waited before.
func (w *waitingListener) reconnects() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting || w.release == nil || w.hints.listener.users.Load() > 1 {
		return nil
	}
	w.idle.Reset(0)
	return errNobodyWaits
}

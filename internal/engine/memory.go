package engine

import (
	"sync"
	"time"
)

// A memory shares out bytes. It is safe for concurrent use.
type memory struct {
	most int64

	mu    sync.Mutex
	used  int64
	freed chan struct{} // closed, and made anew, when some are given back
}

// take waits until n bytes are free, and returns false if that takes longer than most, or done is closed before.
func (m *memory) acquire(n int64, done <-chan struct{}, most time.Duration) bool {
	timer := time.NewTimer(most)
	defer timer.Stop()
	for {
		m.mu.Lock()
		if m.used+n <= m.most {
			m.used += n
			m.mu.Unlock()
			return true
		}
		freed := m.freed
		m.mu.Unlock()
		select {
		case <-freed:
		case <-done:
			return false
		case <-timer.C:
			return false
		}
	}
}

func (m *memory) release(n int64) {
	if n == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used -= n
	close(m.freed)
	m.freed = make(chan struct{})
}

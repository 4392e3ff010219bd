package worker

import (
	"sync"
	"time"
)

// A memory is a weighted semaphore for bytes. It is safe for concurrent use.
type memory struct {
	most int64 // bytes to share

	mu    sync.Mutex    // guards the fields below
	used  int64         // bytes that are acquired and not released
	freed chan struct{} // closed, and replaced, by release
}

// acquire waits until n bytes are free; all of them if n is more. It returns how many it has acquired: zero if that
// takes longer than most, or if done is closed first.
func (m *memory) acquire(n int64, done <-chan struct{}, most time.Duration) int64 {
	n = min(n, m.most)
	timer := time.NewTimer(most)
	defer timer.Stop()
	for {
		m.mu.Lock()
		if m.used+n <= m.most {
			m.used += n
			m.mu.Unlock()
			return n
		}
		freed := m.freed
		m.mu.Unlock()
		select {
		case <-freed:
		case <-done:
			return 0
		case <-timer.C:
			return 0
		}
	}
}

// release frees n acquired bytes.
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

package goroutine

import (
	"slices"
	"sync"
	"testing"
)

func TestIDTellsGoroutinesApart(t *testing.T) {
	t.Parallel()
	const n = 100
	ids := make([]uintptr, n)
	var all, identified sync.WaitGroup
	identified.Add(n)
	for i := range n {
		all.Go(func() {
			ids[i] = ID()
			identified.Done()
			identified.Wait() // all live at the same time
			if deep(1000) != ids[i] {
				t.Error("a goroutine whose stack has moved has another ID")
			}
		})
	}
	all.Wait()
	ids = append(ids, ID())
	slices.Sort(ids)
	if got := len(slices.Compact(ids)); got != n+1 {
		t.Errorf("%d goroutines have %d IDs", n+1, got)
	}
	if ids[0] == 0 {
		t.Error("an ID is zero")
	}
}

// deep returns the ID from deep in the stack, which has to grow for it.
func deep(n int) uintptr {
	var frame [256]byte
	if n == 0 {
		return ID()
	}
	frame[n%256] = 1
	return deep(n-1) + uintptr(frame[(n+1)%256])
}

func BenchmarkID(b *testing.B) {
	for b.Loop() {
		ID()
	}
}

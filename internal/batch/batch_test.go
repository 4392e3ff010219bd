package batch_test

import (
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kagzi/kagzi/internal/batch"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// record is a Flush that keeps a copy of each batch and takes a second of the bubble's clock.
type record struct {
	mu      sync.Mutex
	batches [][]int
}

func (r *record) flush(items []int) {
	r.mu.Lock()
	r.batches = append(r.batches, slices.Clone(items))
	r.mu.Unlock()
	time.Sleep(time.Second)
}

func TestIdleFlushesAtOnceBusyGathers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r record
		b := batch.New(batch.Config[int]{Flush: r.flush})
		b.Add(1)
		synctest.Wait() // the flush of 1 is under way
		for i := 2; i <= 5; i++ {
			b.Add(i)
		}
		start := time.Now()
		b.Wait()
		if d := time.Since(start); d != 2*time.Second {
			t.Errorf("Wait returned after %v, want both flushes' 2s", d)
		}
		b.Add(6)
		b.Wait()
		if want := [][]int{{1}, {2, 3, 4, 5}, {6}}; !reflect.DeepEqual(r.batches, want) {
			t.Errorf("flushed %v, want %v", r.batches, want)
		}
	})
}

func TestMaxItems(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r record
		b := batch.New(batch.Config[int]{Flush: r.flush, MaxItems: 3})
		for i := range 8 {
			b.Add(i)
			if i == 0 {
				synctest.Wait()
			}
		}
		b.Wait()
		if want := [][]int{{0}, {1, 2, 3}, {4, 5, 6}, {7}}; !reflect.DeepEqual(r.batches, want) {
			t.Errorf("flushed %v, want %v", r.batches, want)
		}
	})
}

func TestSeveralFlushesAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r record
		b := batch.New(batch.Config[int]{Flush: r.flush, Flushes: 2})
		start := time.Now()
		for i := range 4 {
			b.Add(i)
			synctest.Wait()
		}
		b.Wait()
		if d := time.Since(start); d != 2*time.Second {
			t.Errorf("4 items took %v, want 2s: two flushes, then the rest", d)
		}
		if want := [][]int{{0}, {1}, {2, 3}}; !reflect.DeepEqual(r.batches, want) {
			t.Errorf("flushed %v, want %v", r.batches, want)
		}
	})
}

func TestWaitWhenIdle(t *testing.T) {
	t.Parallel()
	batch.New(batch.Config[int]{Flush: func([]int) {}}).Wait()
}

// TestOrder adds from many goroutines: every item is flushed once, each goroutine's in its order, one flush
// at a time, none over the limit, and a flush's slice is its own until it returns.
func TestOrder(t *testing.T) {
	t.Parallel()
	const adders, each, maxItems = 20, 500, 16
	type item struct{ adder, n int }
	var next [adders]int
	var flushing atomic.Int32
	b := batch.New(batch.Config[*item]{
		MaxItems: maxItems,
		Flush: func(items []*item) {
			if flushing.Add(1) != 1 {
				t.Error("two flushes at once")
			}
			defer flushing.Add(-1)
			for _, i := range items {
				if i.n != next[i.adder] {
					t.Errorf("adder %d: got item %d, want %d", i.adder, i.n, next[i.adder])
				}
				next[i.adder] = i.n + 1
			}
			if len(items) == 0 || len(items) > maxItems {
				t.Errorf("flush of %d items", len(items))
			}
		},
	})
	var wg sync.WaitGroup
	for a := range adders {
		wg.Go(func() {
			for n := range each {
				b.Add(&item{a, n})
			}
		})
	}
	wg.Wait()
	b.Wait()
	for a, n := range next {
		if n != each {
			t.Errorf("adder %d: %d items flushed, want %d", a, n, each)
		}
	}
}

// BenchmarkAddWait is 100 goroutines which each add an item and wait until it is flushed, by a flush of about
// the time of a commit.
func BenchmarkAddWait(b *testing.B) {
	var flushes atomic.Int64
	ba := batch.New(batch.Config[chan struct{}]{Flush: func(items []chan struct{}) {
		flushes.Add(1)
		time.Sleep(500 * time.Microsecond)
		for _, done := range items {
			done <- struct{}{}
		}
	}})
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			done := make(chan struct{}, 1)
			for left.Add(-1) >= 0 {
				ba.Add(done)
				<-done
			}
		})
	}
	wg.Wait()
	ba.Wait()
	b.ReportMetric(float64(b.N)/float64(flushes.Load()), "items/flush")
}

// BenchmarkAdd is the cost of an item without that of a flush.
func BenchmarkAdd(b *testing.B) {
	ba := batch.New(batch.Config[int]{Flush: func([]int) {}})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			ba.Add(1)
		}
	})
	ba.Wait()
}

package main

import (
	"sync"
	"sync/atomic"
)

// together calls do in so many goroutines, and returns the first error.
func together(goroutines int, do func() error) error {
	var wg sync.WaitGroup
	errs := make(chan error, goroutines)
	for range goroutines {
		wg.Go(func() { errs <- do() })
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// eachOf calls do for first, first+1, …, from several goroutines.
func eachOf(first, count int, do func(n int) error) error {
	var next atomic.Int64
	return together(64, func() error {
		for i := int(next.Add(1)) - 1; i < count; i = int(next.Add(1)) - 1 {
			if err := do(first + i); err != nil {
				return err
			}
		}
		return nil
	})
}

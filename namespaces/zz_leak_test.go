package namespaces

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/testlog"
)

func TestLeakZZ(t *testing.T) {
	pool := dbtest.Pool(t)
	w, err := NewWorker(pool, Config{Handle: handleGreet, Client: kagzi.ClientConfig{Logger: testlog.New(t)}})
	if err != nil {
		t.Fatal(err)
	}
	before := 0
	for i := range 4 {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		var runs []*kagzi.Run[string]
		for k := range 20 {
			c, err := w.Client(fmt.Sprint("n", k))
			if err != nil {
				t.Fatal(err)
			}
			r, err := kagzi.Start(t.Context(), c, greet, "b")
			if err != nil {
				t.Fatal(err)
			}
			runs = append(runs, r)
		}
		for k, r := range runs {
			if i == 2 && k > 5 {
				break // end in the midst of it
			}
			if _, err := r.Result(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		cancel()
		if err := await.Receive(t, done); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			before = runtime.NumGoroutine()
		}
	}
	t.Log(before, runtime.NumGoroutine())
	await.True(t, "goroutines end", func() bool { return runtime.NumGoroutine() < before+20 })
}

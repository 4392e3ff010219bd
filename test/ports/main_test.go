package ports_test

import (
	"sync"
	"testing"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/request"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// ask asks a run, and fails the test unless it gets an answer.
func ask[Out any](k *kit.Kit, to request.Target, q request.Question[Out]) (out Out) {
	k.T.Helper()
	out, err := request.Ask(k.Ctx, k.Client, to, q)
	if err != nil {
		k.T.Error(err)
	}
	return out
}

// atOnce calls do with the numbers from 0 to n-1, concurrently, and returns when all calls have.
func atOnce(n int, do func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { do(i) })
	}
	all.Wait()
}

// Package kit has what Kagzi's black-box tests share: clients, workers and runs of a test, waiting for what must
// happen, hooks, and workflows that many tests need. They use the public API, the database and internal/testhook.
//
//	func TestSomething(t *testing.T) {
//		k := kit.New(t)
//		wf := kagzi.Define[int, int]("wf")
//		kit.Serve(k, wf, func(ctx kagzi.Context, n int) (int, error) { return 2 * n, nil })
//		if got := kit.ResultOf(k, kit.Begin(k, wf, 21)); got != 42 {
//			t.Errorf("got %d", got)
//		}
//	}
package kit

package fault

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/localpg"
)

// Faults may impose the same setting at once. It comes back when the last one has gone, in whatever order they go.
func TestImpose(t *testing.T) {
	t.Parallel()
	server, err := localpg.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	pool, err := pgxpool.New(t.Context(), server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	w := &World{Server: server, Admin: pool}
	for _, in := range []scope{ofServer, ofDatabase} {
		const name = "vacuum_cost_delay"
		before := "7"
		if err := w.apply(t.Context(), in, name, &before); err != nil {
			t.Fatal(err)
		}
		want := func(value string) {
			t.Helper()
			got, err := w.current(t.Context(), in, name)
			if err != nil || got == nil || *got != value {
				t.Fatalf("%s: %v, %v; want %s", in, got, err, value)
			}
		}
		impose := func(value string) (lift func()) {
			t.Helper()
			undo, err := w.impose(t.Context(), in, name, value)
			if err != nil {
				t.Fatal(err)
			}
			want(value)
			return func() {
				t.Helper()
				if err := undo(); err != nil {
					t.Fatal(err)
				}
			}
		}
		first, second, third := impose("11"), impose("12"), impose("13")
		second()
		want("13")
		third()
		want("11")
		first()
		want("7")
		if err := w.apply(t.Context(), in, name, nil); err != nil {
			t.Fatal(err)
		}
		impose("14")()
		if got, err := w.current(t.Context(), in, name); got != nil || err != nil {
			t.Errorf("%s: %v, %v; want none", in, got, err)
		}
	}
}

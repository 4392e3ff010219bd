package kagzi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/kagzi/kagzi/internal/dbtest"
)

// startLocal runs w until the test ends, or until stop is called, which fails the test unless Run returned nil.
func startLocal(t testing.TB, w *Worker) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(hookedContext(ctx, w)) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(2 * patience):
			t.Error("Run has not returned")
		}
	})
	t.Cleanup(stop)
	return stop
}

func touch(t testing.TB, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// startRuns starts n runs of wf with inputs from 0 and returns their handles.
func startRuns[Out any](t testing.TB, c *Client, wf Workflow[int, Out], n int) []*Run[Out] {
	t.Helper()
	calls := make([]Call, n)
	for i := range calls {
		calls[i] = wf.With(i)
	}
	started, err := c.StartMany(t.Context(), calls)
	if err != nil {
		t.Fatal(err)
	}
	runs := make([]*Run[Out], n)
	for i, s := range started {
		runs[i] = find(t, c, wf, s)
	}
	return runs
}

// startedBy returns the handle to a run of some workflow that returns a string.
func startedBy(t testing.TB, c *Client, id RunID) *Run[string] {
	t.Helper()
	info, err := c.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return find(t, c, Define[int, string](info.Workflow), id)
}

// checkResults waits for the runs, the i-th of which must return want(i).
func checkResults[Out comparable](t testing.TB, runs []*Run[Out], want func(i int) Out) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	var wg sync.WaitGroup
	for i, r := range runs {
		wg.Go(func() {
			if got, err := r.Result(ctx); err != nil || got != want(i) {
				t.Errorf("run %d, %s, returned %v, %v; want %v", i, r.ID(), got, err, want(i))
			}
		})
	}
	wg.Wait()
}

// poorClient is a client of a user who has every right on the tables but those that revoke takes away.
func poorClient(t *testing.T, db *dbtest.DB, revoke string) (role string, c *Client, logged *logBuffer) {
	t.Helper()
	role = "poor_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	execSQL(t, db.Pool, `CREATE ROLE `+role)
	t.Cleanup(func() {
		for _, sql := range []string{`DROP OWNED BY `, `DROP ROLE `} {
			if _, err := db.Pool.Exec(context.Background(), sql+role); err != nil {
				t.Error(err)
			}
		}
	})
	execSQL(t, db.Pool, `GRANT USAGE ON SCHEMA kagzi TO `+role)
	execSQL(t, db.Pool, `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA kagzi TO `+role)
	if revoke != "" {
		execSQL(t, db.Pool, fmt.Sprintf(`REVOKE %s FROM %s`, revoke, role))
	}
	c, logged = loggedClient(t, poolWith(t, db.DSN, "role", role))
	return role, c, logged
}

var noop = Define[int, int]("noop", noRetry)

// odd succeeds with odd inputs.
func odd(_ Context, n int) (int, error) {
	if n%2 == 0 {
		return 0, fmt.Errorf("%d is even", n)
	}
	return n, nil
}

// link is what a step makes of its predecessor's result. A lost, doubled or swapped result changes all that follow.
func link(previous, name string) string {
	sum := sha256.Sum256([]byte(previous + ">" + name))
	return hex.EncodeToString(sum[:8])
}

// nothing is a workflow without steps, which its tests serve as they like.
var nothing = Define[int, string]("nothing")

var (
	approved = DefineSignal[string]("approved")
	rejected = DefineSignal[string]("rejected")
)

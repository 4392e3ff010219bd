package kit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/testlog"
)

// StartLocal runs w until the test ends or stop is called. stop fails the test unless Run returns nil.
func StartLocal(t testing.TB, w *kagzi.Worker) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(HookedContext(ctx, w)) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(2 * await.Patience):
			t.Error("Run has not returned")
		}
	})
	t.Cleanup(stop)
	return stop
}

// Touch makes an empty file.
func Touch(t testing.TB, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// StartRuns starts n runs of wf with inputs from 0 and returns their handles.
func StartRuns[Out any](t testing.TB, c *kagzi.Client, wf kagzi.Workflow[int, Out], n int) []*kagzi.Run[Out] {
	t.Helper()
	calls := make([]kagzi.Call, n)
	for i := range calls {
		calls[i] = wf.With(i)
	}
	started, err := c.StartMany(t.Context(), calls)
	if err != nil {
		t.Fatal(err)
	}
	runs := make([]*kagzi.Run[Out], n)
	for i, s := range started {
		runs[i] = Find(t, c, wf, s)
	}
	return runs
}

// StartedBy returns a handle to the run id, whose workflow takes an int and returns a string.
func StartedBy(t testing.TB, c *kagzi.Client, id kagzi.RunID) *kagzi.Run[string] {
	t.Helper()
	info, err := c.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return Find(t, c, kagzi.Define[int, string](info.Workflow), id)
}

// CheckResults waits for the runs, and fails the test unless the i-th run returns want(i).
func CheckResults[Out comparable](t testing.TB, runs []*kagzi.Run[Out], want func(i int) Out) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*await.Patience)
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

// PoorClient returns a client of a role that has every right on the tables except those that revoke takes away.
func PoorClient(t *testing.T, db *dbtest.DB, revoke string) (role string, c *kagzi.Client, logged *testlog.Buffer) {
	t.Helper()
	role = dbtest.Role(t, db)
	if revoke != "" {
		dbtest.Exec(t, db.Pool, fmt.Sprintf(`REVOKE %s FROM %s`, revoke, role))
	}
	c, logged = LoggedClient(t, dbtest.OpenPool(t, db.DSN, dbtest.Setting("role", role)))
	return role, c, logged
}

// LoseRun changes a run to look as though n workers had died with it without progress, and its lease had expired.
func LoseRun(t *testing.T, pool *pgxpool.Pool, id kagzi.RunID, n int) {
	t.Helper()
	dbtest.Exec(t, pool, `UPDATE kagzi.workflow_runs SET status = 'RUNNING', locked_by = $2, lease = $2,
		suspect_lease = $2, started_at = now() - interval '1 hour',
		available_at = now() - interval '1 s', recoveries = $3, recoveries_since = now() - interval '1 hour'
			WHERE run_id = $1`, string(id), uuid.New(), n)
}

// Suspect makes the run wait for its next try, in ten minutes, after n workers that executed it have died.
func Suspect(k *Kit, id kagzi.RunID, n int) {
	k.T.Helper()
	k.Exec(`UPDATE kagzi.workflow_runs SET recoveries = $2, recoveries_since = now(),
		waiting_on = '[{"kind": "recovery"}]',
		available_at = now() + interval '10 minutes' WHERE run_id = $1`, string(id), n)
}

// Noop is a workflow that is not retried.
var Noop = kagzi.Define[int, int]("noop", NoRetry)

// Odd is a workflow function that fails for even inputs.
func Odd(_ kagzi.Context, n int) (int, error) {
	if n%2 == 0 {
		return 0, fmt.Errorf("%d is even", n)
	}
	return n, nil
}

// Link returns the result of the step name, computed from the previous step's result. A lost, repeated or swapped
// result changes all later ones.
func Link(previous, name string) string {
	sum := sha256.Sum256([]byte(previous + ">" + name))
	return hex.EncodeToString(sum[:8])
}

// Nothing is a workflow whose tests define its function.
var Nothing = kagzi.Define[int, string]("nothing")

var (
	Approved = kagzi.DefineSignal[string]("approved")
	Rejected = kagzi.DefineSignal[string]("rejected")
)

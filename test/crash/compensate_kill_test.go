//go:build unix

package crash_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/campaign"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/testhook"
)

var saga = kagzi.Define[int, int]("saga", kagzi.RetryPolicy{MaxAttempts: 1})

// undoSaga compensates one step of a saga. Its first attempt may fail, and its backoff outlasts a wait in memory.
var undoSaga = kagzi.Define[string, int]("undoSaga", kagzi.RetryPolicy{MaxAttempts: 1})

// saga registers three compensations, each before the step that it undoes, and then sleeps to be cancelled, or fails.
func (l workload) saga(ctx kagzi.Context, n int) (int, error) {
	h := fmt.Sprint(n)
	for _, name := range []string{"a", "b", "c"} {
		kagzi.Compensate(ctx, name, undoSaga.With(string(ctx.RunID())+"_"+name))
		var err error
		if h, err = l.step(ctx, name, h); err != nil {
			return 0, err
		}
	}
	if n%2 == 1 {
		if err := kagzi.Sleep(ctx, "until cancelled", time.Hour); err != nil {
			return 0, err
		}
	}
	return 0, errors.New("out of stock")
}

func (l workload) undoSaga(ctx kagzi.Context, of string) (int, error) {
	lease := ctx.(testhook.Branch).Lease()
	return 0, kagzi.Do(ctx, of, func(ctx context.Context) error {
		defer l.begin(ctx, lease)()
		l.reach("during undo")
		if strings.HasSuffix(of, "_b") && kagzi.CurrentStep(ctx).Attempt == 1 {
			return errors.New("not yet")
		}
		return nil
	}, kagzi.RetryPolicy{Backoff: 300 * time.Millisecond, NoJitter: true})
}

// TestKillWhileCompensating kills the worker at each point, early and late in runs that fail or are cancelled: another
// runs the compensations, from the last to the first, none twice but the one under way.
func TestKillWhileCompensating(t *testing.T) {
	t.Parallel()
	for _, kill := range campaign.Some([]struct {
		point string
		nth   int
	}{
		{"during undo", 1},
		{"during undo", 4},
		{"after claim", 4},
		{"finish", 1},
		{"before step", 1},
		{"after step", 4},
		{"after record", 1},
		{"suspend", 1},
		{"before flush", 4},
		{"after flush", 1},
		{"after flush", 4},
	}, 4) {
		point, nth := kill.point, kill.nth
		{
			t.Run(fmt.Sprint(strings.ReplaceAll(point, " ", "-"), nth), func(t *testing.T) {
				t.Parallel()
				kit.WaitTurn(t)
				db := dbtest.Database(t)
				dbtest.Audit(t, db.Pool)
				c := kit.NewClient(t, db.Pool)
				runs := kit.StartRuns(t, c, saga, 4)
				dir := t.TempDir()
				files := [2]string{filepath.Join(dir, "victim"), filepath.Join(dir, "rescuer")}
				victim := startProcess(t, workerSpec{
					DSN: db.DSN, Ledger: files[0], Config: kit.Quick, Point: point,
					Nth: nth, Signal: syscall.SIGKILL,
				})
				cancels := make(chan error, 1)
				go func() { cancels <- cancelAllAsleep(kit.Context(t), c, runs) }()
				victim.killed(t)
				startProcess(t, workerSpec{DSN: db.DSN, Ledger: files[1], Config: kit.Quick})
				if err := <-cancels; err != nil {
					t.Fatal(err)
				}
				for i, r := range runs {
					checkUndone(t, files, i, r)
				}
			})
		}
	}
}

// cancelAllAsleep cancels each odd run once it sleeps.
func cancelAllAsleep(ctx context.Context, c *kagzi.Client, runs []*kagzi.Run[int]) error {
	for i := 1; i < len(runs); i += 2 {
		for {
			info, err := runs[i].Info(ctx)
			if err != nil {
				return err
			}
			if info.Status == kagzi.StatusSleeping && info.WaitingOn.String() == "timer until cancelled" {
				break
			}
			<-time.After(5 * time.Millisecond)
		}
		if err := runs[i].Cancel(ctx); err != nil {
			return err
		}
	}
	return nil
}

// checkUndone compares the end of a run and its executed steps with the expected ones.
func checkUndone(t *testing.T, files [2]string, i int, r *kagzi.Run[int]) {
	_, err := r.Result(kit.Context(t))
	var re *kagzi.RunError
	if !errors.As(err, &re) || i%2 == 0 && (re.Status != kagzi.StatusFailed || re.Message != "out of stock") ||
		i%2 == 1 && re.Status != kagzi.StatusCancelled {
		t.Errorf("run %d ended with %v", i, err)
	}
	var order []string
	for _, file := range files {
		lines, err := readLedger(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range lines {
			if len(l) < 4 || l[0] != "BEGIN" {
				continue
			}
			if name, ok := strings.CutPrefix(l[2], string(r.ID())+"_"); ok {
				order = append(order, name+l[3])
			}
		}
	}
	got := strings.Join(order, " ")
	again := got
	for _, s := range []string{"c1", "b1", "b2", "a1"} { // one of them may have been cut short
		again = strings.Replace(again, s+" "+s, s, 1)
	}
	if again != "c1 b1 b2 a1" || len(order) > 5 {
		t.Errorf("run %d: undone: %s", i, got)
	}
}

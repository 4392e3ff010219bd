package schedules_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/notify"
)

// Where no process waits for results, the ends of runs are not announced, but for those of a schedule's: another run of
// it may be queued, and the coordinator of another process begins that.
func TestEndOfASchedulesRunIsAnnounced(t *testing.T) {
	t.Parallel()
	for status, err := range map[kagzi.Status]error{
		kagzi.StatusCompleted: nil, kagzi.StatusFailed: kagzi.Permanent(errors.New("broken")),
	} {
		t.Run(string(status), func(t *testing.T) {
			k := kit.New(t)
			kit.Serve(k, kit.Report, func(kagzi.Context, string) (string, error) { return "", err })
			k.Schedule(kagzi.Schedule{Name: "s", Every: time.Hour})
			heard := hearEnds(k)
			ends := func(id kagzi.RunID) kagzi.RunID {
				await.True(t, "the run ends", func() bool { return k.InfoOf(id).Status == status })
				return id
			}
			await.True(t, "no process waits any more", func() bool {
				plain := ends(kit.Begin(k, kit.Report, "").ID())
				scheduled, err := admin.New(k.Client).Schedules.Trigger(k.Ctx, "s")
				if err != nil {
					t.Fatal(err)
				}
				ends(scheduled)
				await.True(t, "the end of the schedule's run is announced", func() bool { return heard(scheduled) })
				return !heard(plain) // which would have been announced before
			})
		})
	}
}

// hearEnds listens as another process does. It returns a function that reports whether the run was announced so far.
func hearEnds(k *kit.Kit) func(kagzi.RunID) bool {
	conn, err := k.Pool.Acquire(k.Ctx)
	if err != nil {
		k.T.Fatal(err)
	}
	if _, err := conn.Exec(k.Ctx, "LISTEN "+notify.RunChannel); err != nil {
		k.T.Fatal(err)
	}
	var mu sync.Mutex
	var announced strings.Builder
	ctx, cancel := context.WithCancel(k.Ctx)
	var ended sync.WaitGroup
	ended.Go(func() {
		defer conn.Release()
		for {
			n, err := conn.Conn().WaitForNotification(ctx)
			if err != nil {
				return // ctx has ended
			}
			mu.Lock()
			announced.WriteString(n.Payload)
			mu.Unlock()
		}
	})
	k.T.Cleanup(func() {
		cancel()
		ended.Wait()
	})
	return func(id kagzi.RunID) bool {
		mu.Lock()
		defer mu.Unlock()
		return strings.Contains(announced.String(), string(id))
	}
}

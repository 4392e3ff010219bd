package schedules_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/kit"
)

// An interceptor refuses the ticks of one schedule. Its error is stored, the schedule stays due and is not paused, and
// a tick that the interceptor lets pass removes the error.
func TestRefusalOfAnInterceptorIsStored(t *testing.T) {
	var open atomic.Bool
	k := kit.NewWith(t, kagzi.ClientConfig{Interceptors: []kagzi.Interceptor{{
		Start: func(ctx context.Context, starts []*kagzi.StartCall, next func(context.Context) error) error {
			if starts[0].Schedule == "refused" && !open.Load() {
				return errors.New("the tenant may start nothing")
			}
			return next(ctx)
		},
	}}})
	for _, name := range []string{"other", "refused"} {
		k.Schedule(kagzi.Schedule{Name: name, Every: time.Hour})
		k.Missed(name, time.Hour)
	}
	co := k.Coordinator()
	for range 2 {
		if _, err := k.Fire(co); err == nil || !strings.Contains(err.Error(), "the tenant may start nothing") {
			t.Errorf("the pass returns %v", err)
		}
	}
	if info := k.Info("refused"); info.Paused || !strings.Contains(info.Error, "the tenant may start nothing") ||
		info.Next.After(k.Now()) || len(k.Fired("refused")) != 0 {
		t.Errorf("the refused schedule has %d runs, and is %+v", len(k.Fired("refused")), info)
	}
	if info := k.Info("other"); info.Error != "" || len(k.Fired("other")) != 1 {
		t.Errorf("the other schedule has %d runs, and is %+v", len(k.Fired("other")), info)
	}
	k.Exec(`UPDATE kagzi.schedules SET next_at = now() - interval '1 hour' WHERE name = 'refused'`)
	report, err := admin.New(k.Client).Health(k.Ctx)
	if detail := report.Check("schedules").Detail; err != nil ||
		!strings.HasPrefix(detail, "1 schedule is more than a minute late because the last try to fire failed") ||
		!strings.Contains(detail, `"refused" (the tenant may start nothing). It is tried again`) ||
		strings.Contains(detail, "no coordinator keeps up") {
		t.Errorf("health says %q, %v", detail, err)
	}
	open.Store(true)
	if _, err := admin.New(k.Client).Schedules.Trigger(k.Ctx, "refused"); err != nil {
		t.Fatal(err)
	}
	if info := k.Info("refused"); info.Paused {
		t.Errorf("a trigger has paused it: %+v", info)
	}
	k.Pass(co)
	if info := k.Info("refused"); info.Error != "" || info.Paused || !info.Next.After(k.Now()) {
		t.Errorf("the schedule that was fired is %+v", info)
	}
}

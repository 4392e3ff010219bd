package fault

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

func standbyFaults() []Fault {
	return []Fault{
		// F15: the synchronous standby is gone: no commit returns.
		{Name: "F15 synchronous standby gone", Kind: "F15", Inject: standbyGone},
	}
}

const (
	standbyNames = "synchronous_standby_names"
	awaitStandby = `SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`
)

// standbyGone names a standby that is not there. The server lets commits return again when the name is gone.
func standbyGone(ctx context.Context, w *World, _ *rand.Rand, d time.Duration) (effect int, note string, err error) {
	lift, err := w.impose(ctx, ofServer, standbyNames, "a_standby_that_is_gone")
	if err != nil {
		return 0, "", err
	}
	defer func() { err = errors.Join(err, lift()) }()
	begun := time.Now()
	until(ctx, d+patience, func() bool {
		n, failed := ask[int](ctx, w, awaitStandby)
		effect = max(effect, n)
		return failed != nil || time.Since(begun) >= d && effect > 0
	})
	return effect, fmt.Sprintf("%d commits waited at once", effect), ctx.Err()
}

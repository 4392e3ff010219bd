package housekeeping

import (
	"context"
	"time"

	"github.com/kagzi/kagzi/store"
)

// keysPerPass is how many keys one pass of PruneKeys reads.
const keysPerPass = 1000

// KeepKeys settles changes of queues' limits once all claims know them, and deletes idle keys, some at each pass.
func (k *Coordinator) KeepKeys(ctx context.Context) (time.Duration, error) {
	settled, err := k.cfg.Store.Limits.SettleQueues(ctx)
	for _, queue := range settled {
		_ = k.cfg.Hints.Due(ctx, nil, store.DueRun{Queue: queue}) // fails only in a transaction
	}
	if err == nil {
		_, k.keys, err = k.cfg.Store.Limits.PruneKeys(ctx, k.keys, keysPerPass)
	}
	return k.cfg.Interval, err
}

package replay

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store"
)

// beginTx begins a transaction for a step. Its slots leave the pool the connections that the engine needs. It always
// sets the isolation level, because the default of the database or role may be stricter. end rolls the transaction back
// unless it is committed, and frees its slot. It takes the error of the transaction, and may be called more than once.
func (env *Env) beginTx(ctx context.Context, level pgx.TxIsoLevel) (tx pgx.Tx, end func(error), err error) {
	select {
	case env.txSlots <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
	tx, err = env.Store.Pool().BeginTx(ctx, pgx.TxOptions{BeginQuery: store.BeginStepTx(level)})
	if err != nil {
		<-env.txSlots
		return nil, nil, err
	}
	var once sync.Once
	return tx, func(err error) {
		once.Do(func() {
			pg.DropReadOnly(tx.Conn(), err)
			rollback(tx)
			<-env.txSlots
		})
	}, nil
}

func rollback(tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = tx.Rollback(ctx) // if it fails, the transaction ends with its connection
}

package doctor

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/store/inspect"
)

// outsidePool is how many connections a process with one worker has outside of its pool: its heartbeat's and its
// listener's.
const outsidePool = 2

// pooler checks whether there is a pooler between the pool and the server, and whether notifications arrive through it.
// A pooler makes up the process ID that it sends to its clients. A pooler in transaction mode assigns a backend to each
// transaction: while another connection uses the backend that answered last, the next answer comes from another
// backend.
func (e *examination) pooler(ctx context.Context) error {
	conn, err := store.Connect(ctx, e.pool)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	before, err := inspect.BackendPID(ctx, conn)
	if err != nil {
		return err
	}
	e.pooled = before != conn.PgConn().PID()
	var after uint32
	err = pgx.BeginTxFunc(ctx, e.db, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) (err error) {
		if _, err = inspect.BackendPID(ctx, tx); err == nil {
			after, err = inspect.BackendPID(ctx, conn)
		}
		return err
	})
	if err != nil {
		return err
	}
	heard := false
	if before == after && !e.server.Standby {
		if heard, err = inspect.Hears(ctx, conn, e.db, uuid.NewString(), hearTimeout); err != nil {
			return err
		}
	}
	switch {
	case heard && e.pooled:
		e.add("pooler", Fine, "", "There is a pooler in session mode, through which notifications arrive.")
	case heard:
		e.add("pooler", Fine, "", "No pooler; notifications arrive.")
	case e.server.Standby && before == after:
		e.add("pooler", Unseen, "", "A standby sends no notifications, so this cannot be tried.")
	default:
		e.add("pooler", Warning, "Connect to the server itself or through a pooler in session mode, or live with "+
			"WorkerConfig.PollInterval; call Migrate over a direct connection in any case, "+
			"and add default_query_exec_mode=exec to the URL if the pooler knows no prepared statements.",
			"There is a pooler in transaction mode: notifications do not arrive, so workers and Result poll.")
	}
	return nil
}

// connections compares the size of the pool with what a worker needs, and with the limits of the server, the user and
// the database.
func (e *examination) connections(context.Context) error {
	s, most := e.server, int(e.pool.Config().MaxConns)
	switch {
	case most < store.LeastConns:
		e.add("pool", Problem, "Set pool_max_conns=4 or more in the connection string.",
			"The pool may open %d connection, and a worker needs %d.", most, store.LeastConns)
	case most < 2*store.LeastConns:
		e.add("pool", Warning, "Set pool_max_conns=10 in the connection string.", "The pool may open %d connections: "+
			"a worker keeps %d for itself, so transactional steps run one at a time.", most, store.LeastConns)
	}
	for _, limit := range []struct {
		what string
		n    int
		do   string
	}{
		{"the server has for all (max_connections)", s.MaxConnections, "Raise max_connections and restart the " +
			"server, or set pool_max_conns lower."},
		{"this user may have", s.UserLimit, "ALTER ROLE " + quote(s.User) + " CONNECTION LIMIT -1; or set " +
			"pool_max_conns lower."},
		{"this database may have", s.DatabaseLimit, "ALTER DATABASE … CONNECTION LIMIT -1; or set " +
			"pool_max_conns lower."},
	} {
		if limit.n >= 0 && most+outsidePool > limit.n && !e.pooled {
			e.add("pool", Warning, limit.do, "The pool may open %d connections and a worker %d outside of it: more "+
				"than the %d that %s.", most, outsidePool, limit.n, limit.what)
		}
	}
	if s.Connections*10 > s.MaxConnections*9 {
		e.add("pool", Warning, "Close connections that are not needed, raise max_connections, or put a pooler "+
			"in front.", "%d of the server's %d connections are in use.", s.Connections, s.MaxConnections)
	}
	e.addFine("pool", "The pool may open %d connections; %d of the server's %d are in use.", most, s.Connections,
		s.MaxConnections)
	return nil
}

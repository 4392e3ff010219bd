package dbtest

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// poolConns is the size of the pool that a test gets without MaxConns.
const poolConns = 10

// A database is one of those that the tests of the binary take in turn. It keeps its connections for the next test,
// with their prepared statements: a new connection costs the server more than all that a short test does with it.
type database struct {
	name   string
	dsn    string        // of the owner
	appDSN string        // of the test's pools
	pool   *pgxpool.Pool // of poolConns connections; nil until a test wants it
	used   use           // of the pool, when the cleaner of the last test had taken its connections
}

// A use tells whether anything has used a pool meanwhile.
type use struct {
	acquired int64
	conns    int32
}

func useOf(pool *pgxpool.Pool) use {
	stat := pool.Stat()
	return use{acquired: stat.AcquireCount(), conns: stat.TotalConns()}
}

// open returns a pool of maxConns connections. That is the database's own, unless its size is another, or something of
// an earlier test, such as a notification on its way, has used it after that test's end. What does so would use the
// next test's tables, and if it opened a connection while the cleaner worked, the pool has one whose session the
// cleaner has ended.
func (d *database) open(ctx context.Context, maxConns int32) (*pgxpool.Pool, error) {
	if d.pool != nil && (maxConns != poolConns || useOf(d.pool) != d.used) {
		d.pool.Close()
		d.pool = nil
	}
	if d.pool != nil {
		return d.pool, nil
	}
	cfg, err := pgxpool.ParseConfig(d.appDSN)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = maxConns
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err == nil && maxConns == poolConns {
		d.pool = pool
	}
	return pool, err
}

// toOwner makes the database one whose pool is the owner's. No other test uses it after this one.
func (d *database) toOwner() {
	if d.appDSN != d.dsn {
		d.close()
		d.pool, d.appDSN = nil, d.dsn
	}
}

// forgetSession is DISCARD ALL without the prepared statements and their plans. It also has the session report its
// statistics, which tests read, at once: it would do so in the middle of the next test.
const forgetSession = `CLOSE ALL; RESET SESSION AUTHORIZATION; RESET ALL; UNLISTEN *; SELECT pg_advisory_unlock_all();
	DISCARD SEQUENCES; DISCARD TEMP;
	DO $$ BEGIN IF current_setting('server_version_num')::int >= 150000 THEN PERFORM pg_stat_force_next_flush(); END IF;
		END $$`

// A cleaner looks at a database and empties it, when its test has ended.
type cleaner struct {
	*pgx.Conn
	kept []*pgxpool.Conn // of the database's own pool, all of them; nil if the test closed it
	// whether Conn was opened for this, because none are kept, or they are not the owner's; release closes it then
	fresh bool
}

// clean returns the cleaner of d. It does not keep a pool that the test has closed, or one with a connection that is
// still in use or does not answer.
func (d *database) clean(ctx context.Context) (_ *cleaner, err error) {
	c := &cleaner{}
	if d.pool != nil && !c.keep(ctx, d) {
		c.release()
		d.pool.Close()
		d.pool = nil
	}
	if len(c.kept) > 0 && d.appDSN == d.dsn {
		c.Conn = c.kept[0].Conn()
		return c, nil
	}
	c.fresh = true
	c.Conn, err = pgx.Connect(ctx, d.dsn)
	return c, err
}

// keep takes all connections of d's pool and prepares them for the next test. It reports whether that was possible.
func (c *cleaner) keep(ctx context.Context, d *database) bool {
	c.kept = d.pool.AcquireAllIdle(ctx)
	d.used = useOf(d.pool)
	if len(c.kept) == 0 || len(c.kept) < int(d.used.conns) {
		return false
	}
	for _, conn := range c.kept {
		if _, err := conn.Conn().PgConn().Exec(ctx, forgetSession).ReadAll(); err != nil {
			return false
		}
	}
	return true
}

// sessions returns the server's processes of the connections that are kept.
func (c *cleaner) sessions() []uint32 {
	pids := make([]uint32, len(c.kept))
	for i, conn := range c.kept {
		pids[i] = conn.Conn().PgConn().PID()
	}
	return pids
}

// release gives the connections back to the pool.
func (c *cleaner) release() {
	for _, conn := range c.kept {
		conn.Release()
	}
	c.kept = nil
	if c.fresh {
		_ = c.Close(context.Background()) // dropping the database ends it too
	}
}

// close ends the database's own connections.
func (d *database) close() {
	if d.pool != nil {
		d.pool.Close()
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/localpg"
)

// A lab is a throwaway server, and the databases in it.
type lab struct {
	server    *localpg.Cluster
	admin     *pgxpool.Pool // of the database postgres, which no engine uses
	quick     bool
	templates map[string]bool // databases to copy, by name
	databases int             // created so far
	rows      int             // that ended, and that sleep, in the state full
}

func openLab(ctx context.Context, cfg config) (*lab, error) {
	// A try asserts no time, so it need not wait for disks.
	server, err := localpg.Config{Durable: !cfg.quick, MaxConnections: 500, Settings: map[string]string{
		"shared_buffers": "1GB", "max_wal_size": "8GB", "checkpoint_timeout": "30min", "wal_compression": "off",
		"shared_preload_libraries": "pg_stat_statements", "pg_stat_statements.track": "top",
	}}.Start(ctx)
	if err != nil {
		return nil, err
	}
	l := &lab{server: server, quick: cfg.quick, rows: cfg.rows, templates: map[string]bool{}}
	if l.admin, err = l.connect(ctx, "postgres", 2); err == nil {
		_, err = l.admin.Exec(ctx, "CREATE EXTENSION pg_stat_statements")
	}
	if err != nil {
		return nil, errors.Join(err, server.Stop())
	}
	return l, nil
}

func (l *lab) close() error {
	l.admin.Close()
	return l.server.Stop()
}

// dsn returns the address of a database, over the Unix socket.
func (l *lab) dsn(database string) string {
	return strings.Replace(l.server.SocketDSN(), "@/postgres?", "@/"+database+"?", 1)
}

func (l *lab) connect(ctx context.Context, database string, connections int32) (*pgxpool.Pool, error) {
	cfg, err := pgx.ParseConfig(l.dsn(database))
	if err != nil {
		return nil, err
	}
	return pgxpool.NewWithConfig(ctx, poolConfig(cfg, connections))
}

func poolConfig(conn *pgx.ConnConfig, connections int32) *pgxpool.Config {
	cfg, err := pgxpool.ParseConfig("")
	if err != nil {
		panic(err) // of an empty string
	}
	cfg.ConnConfig, cfg.MaxConns = conn, connections
	return cfg
}

// A state is what a database contains before a measurement.
type state string

const (
	empty state = "new"  // just migrated, never analysed, and autovacuum is off
	used  state = "used" // runs have been executed in it, and it was vacuumed and analysed
	full  state = "full" // has many runs that ended, and as many that sleep
)

// A trial is a database of its own with an engine in it.
type trial struct {
	lab    *lab
	engine engine
	name   string
	conns  int32
	pool   *pgxpool.Pool
	server *server // nil: the engine needs none, or it is not started
	queue  queue   // nil: it is not open

	completed int // runs that had completed at the last check
}

// newTrial returns a trial of e in a copy of a database in this state. Its pool has this many connections.
func (l *lab) newTrial(ctx context.Context, e engine, s state, conns int32) (*trial, error) {
	template, err := l.template(ctx, e, s)
	if err != nil {
		return nil, fmt.Errorf("template: %w", err)
	}
	t, err := l.copy(ctx, e, template, conns)
	if err != nil {
		return nil, err
	}
	if err = t.open(ctx); err == nil {
		t.completed, _, err = e.count(ctx, t.pool, 1)
	}
	if err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

// copy returns a trial that is not open yet.
func (l *lab) copy(ctx context.Context, e engine, template string, conns int32) (*trial, error) {
	l.databases++
	t := &trial{lab: l, engine: e, name: fmt.Sprintf("bench_%d", l.databases), conns: conns}
	if _, err := l.admin.Exec(ctx, "CREATE DATABASE "+t.name+" TEMPLATE "+template); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *trial) open(ctx context.Context) error {
	if err := t.connect(ctx); err != nil {
		return err
	}
	return t.begin(ctx)
}

func (t *trial) connect(ctx context.Context) (err error) {
	t.pool, err = t.lab.connect(ctx, t.name, t.conns)
	return err
}

// begin opens the queue, and starts the engine's server before.
func (t *trial) begin(ctx context.Context) (err error) {
	if s, ok := t.engine.(served); ok {
		if t.server, err = s.serve(ctx, t.pool); err != nil {
			return err
		}
		t.engine = s.at(t.server.address)
	}
	t.queue, err = t.engine.open(t.pool)
	return err
}

// address is that of the engine's server.
func (t *trial) address() string {
	if t.server == nil {
		return ""
	}
	return t.server.address
}

// disconnect ends everything that has connections to the database.
func (t *trial) disconnect() (err error) {
	if t.queue != nil {
		err = closeQueue(t.queue)
	}
	if t.server != nil {
		err = errors.Join(err, t.server.stop())
	}
	if t.pool != nil {
		t.pool.Close()
	}
	t.queue, t.server, t.pool = nil, nil, nil
	return err
}

func closeQueue(q queue) error {
	if c, ok := q.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

func (t *trial) close() {
	_ = t.disconnect()
	_, _ = t.lab.admin.Exec(context.Background(), "DROP DATABASE IF EXISTS "+t.name+" WITH (FORCE)")
}

// template returns the name of a database to copy, and makes it if there is none yet.
func (l *lab) template(ctx context.Context, e engine, s state) (string, error) {
	name := e.schema() + "_" + string(s)
	if l.templates[name] {
		return name, nil
	}
	t, err := l.copy(ctx, e, "template1", 8)
	if err != nil {
		return "", err
	}
	defer t.close()
	if err := t.connect(ctx); err != nil {
		return "", err
	}
	if err := t.engine.migrate(ctx, t.pool); err != nil {
		return "", err
	}
	if err := t.begin(ctx); err != nil {
		return "", err
	}
	if s == empty {
		err = t.disableAutovacuum(ctx)
	} else {
		err = t.use(ctx, s == full)
	}
	if err != nil {
		return "", err
	}
	if err := t.disconnect(); err != nil {
		return "", err
	}
	if err := quiesced(ctx, l.admin, t.name); err != nil {
		return "", err
	}
	_, err = l.admin.Exec(ctx, "ALTER DATABASE "+t.name+" RENAME TO "+name)
	l.templates[name] = err == nil
	return name, err
}

// use executes 3,000 runs of five steps.
func (t *trial) use(ctx context.Context, fill bool) error {
	if fill {
		rows := t.lab.size(t.lab.rows)
		if err := t.engine.fill(ctx, t.pool, rows, rows); err != nil {
			return err
		}
	}
	runs := t.lab.size(3000)
	if _, err := t.drain(ctx, runs, 100, 5); err != nil {
		return err
	}
	return t.settle(ctx)
}

// settle brings the planner's statistics up to date, and the dirty pages to the disk.
func (t *trial) settle(ctx context.Context) error {
	_, err := t.pool.Exec(ctx, "VACUUM ANALYZE", pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return err
	}
	_, err = t.pool.Exec(ctx, "CHECKPOINT", pgx.QueryExecModeSimpleProtocol)
	return err
}

func (t *trial) disableAutovacuum(ctx context.Context) error {
	_, err := t.pool.Exec(ctx, `
		DO $$ DECLARE t regclass; BEGIN
			FOR t IN SELECT c.oid FROM pg_class c WHERE c.relkind = 'r'
				AND c.relnamespace::regnamespace::text NOT IN ('pg_catalog', 'information_schema') LOOP
				EXECUTE format('ALTER TABLE %s SET (autovacuum_enabled = off)', t);
			END LOOP;
		END $$`)
	return err
}

// preload starts runs in bulk.
func (t *trial) preload(ctx context.Context, runs int) error {
	for first := 0; first < runs; first += 5000 {
		if err := t.queue.startMany(ctx, first, min(5000, runs-first)); err != nil {
			return err
		}
	}
	return nil
}

// drain executes runs that wait in the queue, and returns how long they took from the first line of the first run to
// the end of the last.
func (t *trial) drain(ctx context.Context, runs, concurrency, steps int) (time.Duration, error) {
	if err := t.preload(ctx, runs); err != nil {
		return 0, err
	}
	if err := t.settle(ctx); err != nil {
		return 0, err
	}
	return t.execute(ctx, runs, concurrency, task{Steps: steps})
}

// execute is the part of drain that is measured.
func (t *trial) execute(ctx context.Context, runs, concurrency int, work task) (time.Duration, error) {
	j := newJournal(runs)
	work.report = j.report
	w, err := t.queue.work(ctx, defaultQueue, concurrency, work)
	if err != nil {
		return 0, err
	}
	err = j.wait(ctx, &j.nEnded, runs)
	if err == nil {
		err = w.flush()
	}
	took := time.Since(j.firstBegan())
	if stopped := w.stop(); err == nil {
		err = stopped
	}
	return took, err
}

const readCounters = `
	SELECT (SELECT coalesce(sum(s.calls), 0)::bigint FROM pg_stat_statements s WHERE s.dbid = d.oid),
		pg_stat_get_db_xact_commit(d.oid), pg_current_wal_insert_lsn() - '0/0'::pg_lsn
	FROM pg_database d WHERE d.datname = $1`

// read reads the counters of a database over a connection to another one.
func (l *lab) read(ctx context.Context, database string) (reading, error) {
	var r reading
	err := l.admin.QueryRow(ctx, readCounters, database).Scan(&r.statements, &r.commits, &r.wal)
	r.machine, r.server, r.client, r.known = processorSeconds(l.server.PID())
	r.at = time.Now()
	return r, err
}

// measured returns what do cost. It begins with new connections, and ends when they are closed, because only then the
// counters are complete. do returns the number of runs.
func (t *trial) measured(ctx context.Context, do func() (runs int, err error)) (cost, error) {
	if err := t.disconnect(); err != nil {
		return cost{}, err
	}
	if err := quiesced(ctx, t.lab.admin, t.name); err != nil {
		return cost{}, err
	}
	if err := t.open(ctx); err != nil {
		return cost{}, err
	}
	before, err := t.lab.read(ctx, t.name)
	if err != nil {
		return cost{}, err
	}
	runs, err := do()
	if err != nil {
		return cost{}, err
	}
	if err := t.disconnect(); err != nil {
		return cost{}, err
	}
	if err := quiesced(ctx, t.lab.admin, t.name); err != nil {
		return cost{}, err
	}
	after, err := t.lab.read(ctx, t.name)
	if err != nil {
		return cost{}, err
	}
	return after.since(before, runs), t.open(ctx)
}

// check returns an error unless so many runs have completed since the last check, with so many steps each.
func (t *trial) check(ctx context.Context, runs, steps int) error {
	completed, gotSteps, err := t.engine.count(ctx, t.pool, runs)
	if err != nil {
		return err
	}
	if got := completed - t.completed; got != runs || gotSteps != float64(steps) {
		return fmt.Errorf("%s completed %d runs with %.1f steps each, want %d with %d", t.engine.name(), got, gotSteps,
			runs, steps)
	}
	t.completed = completed
	return nil
}

// size returns n, or a little if the benchmark is only tried.
func (l *lab) size(n int) int {
	if l.quick {
		return max(n/500, min(n, 20))
	}
	return n
}

// long returns d, or a moment if the benchmark is only tried.
func (l *lab) long(d time.Duration) time.Duration {
	if l.quick {
		return d / 50
	}
	return d
}

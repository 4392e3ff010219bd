package kagzitest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/localpg"
	"github.com/kagzi/kagzi/migrations"
)

// A server has the databases of the test binary.
type server struct {
	dsn      string // of the database in which CREATE DATABASE is executed
	stop     func() error
	template string // name of the database that the others are copies of
	name     string // of the binary's databases, without their numbers

	mu   sync.Mutex // guards made
	made int        // number of databases made so far
}

// shared is the test binary's server.
var shared = localpg.Shared[*server]{Start: startServer}

// stopSharedServer ends the server if it was started.
func stopSharedServer() error {
	return shared.Stop(func(s *server) error { return s.stop() })
}

const (
	databases      = "kagzitest_"
	dateLayout     = "20060102"
	leftBehind     = 48 * time.Hour // the age at which a database belongs to a killed test binary
	serverLock     = 0x6b61677a6974 // "kagzit"
	templatePrefix = databases + "template_"
)

func startServer(ctx context.Context) (_ *server, err error) {
	schema, err := migrations.SQL(0, 0)
	if err != nil {
		return nil, err
	}
	dsn, stop, err := localpg.Open(ctx)
	if err != nil {
		return nil, err
	}
	s := &server{dsn: dsn, stop: stop}
	s.name = databases + time.Now().UTC().Format(dateLayout) + "_" + strings.ToLower(rand.Text())[:10] + "_"
	s.template = templatePrefix + hashOf(schema, shadow)
	defer func() {
		if err != nil {
			err = errors.Join(err, stop())
		}
	}()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	// The server may be one that other test binaries use at the same time.
	if _, err := conn.Exec(ctx, `SELECT pg_advisory_lock($1)`, serverLock); err != nil {
		return nil, err
	}
	if err := s.sweep(ctx, conn); err != nil {
		return nil, err
	}
	return s, s.makeTemplate(ctx, conn)
}

func hashOf(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])[:12]
}

// sweep drops the databases that killed test binaries left on a server that outlives them.
func (s *server) sweep(ctx context.Context, conn *pgx.Conn) error {
	rows, _ := conn.Query(ctx, `SELECT datname::text FROM pg_database WHERE starts_with(datname, $1)`, databases)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, name := range names {
		date, _, _ := strings.Cut(strings.TrimPrefix(name, databases), "_")
		if made, err := time.Parse(dateLayout, date); err != nil || time.Since(made) < leftBehind {
			continue
		}
		if _, err := conn.Exec(ctx, "DROP DATABASE IF EXISTS "+identifier(name)+" WITH (FORCE)"); err != nil {
			return err
		}
	}
	return nil
}

// makeTemplate makes the database that the others are copies of, unless the server has it. The database gets its final
// name when it is complete.
func (s *server) makeTemplate(ctx context.Context, conn *pgx.Conn) error {
	var there bool
	if err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`, s.template).
		Scan(&there); err != nil || there {
		return err
	}
	draft := s.name + "template"
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+identifier(draft)+" TEMPLATE template0"); err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, withDatabase(s.dsn, draft))
	if err != nil {
		return err
	}
	if err = kagzi.Migrate(ctx, pool); err == nil {
		_, err = pool.Exec(ctx, shadow, pgx.QueryExecModeSimpleProtocol)
	}
	pool.Close()
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "ALTER DATABASE "+identifier(draft)+" RENAME TO "+identifier(s.template))
	return err
}

// exec executes statements on a new connection. Tests that search for leftover goroutines would find a connection that
// is kept open.
func (s *server) exec(ctx context.Context, statements ...string) error {
	conn, err := pgx.Connect(ctx, s.dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// take makes a database and returns its name.
func (s *server) take(ctx context.Context) (string, error) {
	s.mu.Lock()
	s.made++
	name := fmt.Sprintf("%s%d", s.name, s.made)
	s.mu.Unlock()
	return name, s.exec(ctx, "CREATE DATABASE "+identifier(name)+" TEMPLATE "+identifier(s.template), "ALTER DATABASE "+
		identifier(name)+" SET search_path = "+searchPath)
}

// drop drops a database and ends the sessions connected to it.
func (s *server) drop(ctx context.Context, name string) error {
	return s.exec(ctx, "DROP DATABASE IF EXISTS "+identifier(name)+" WITH (FORCE)")
}

// identifier quotes the name of a database.
func identifier(name string) string { return pgx.Identifier{name}.Sanitize() }

// withDatabase returns the DSN, of either form, for another database of the same server.
func withDatabase(dsn, name string) string {
	if u, err := url.Parse(dsn); err == nil && (u.Scheme == "postgres" || u.Scheme == "postgresql") {
		u.Path = "/" + name
		return u.String()
	}
	return dsn + " dbname=" + name // the last value of a key counts
}

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/store"
)

// connectTimeout is how long a server may take to answer, unless the connection string has a connect_timeout.
const connectTimeout = 10 * time.Second

// fewConns is the size of the pool unless a command asks for another: a command has few calls at once, and a health
// check needs a free connection.
const fewConns = 4

// postgresVariables are those of libpq that say where a database is.
var postgresVariables = []string{"PGHOST", "PGHOSTADDR", "PGPORT", "PGDATABASE", "PGUSER", "PGSERVICE"}

// open opens the pool and checks that the server answers.
func (a *app) open(ctx context.Context) (*pgxpool.Pool, error) {
	if a.pool != nil {
		return a.pool, nil
	}
	pool, err := a.dial(ctx)
	if err == nil {
		err = pool.Ping(ctx)
	}
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return pool, a.connectionError(err)
}

// dial makes the pool, and sends nothing.
func (a *app) dial(ctx context.Context) (*pgxpool.Pool, error) {
	url, _ := a.source()
	if url == "" && !a.hasPostgresVariables() {
		return nil,
			usagef("no database is given: set KAGZI_DATABASE_URL=postgres://user:password@host:5432/database, or " +
				"PGHOST, PGUSER and PGDATABASE")
	}
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns, cfg.MinConns = cmp.Or(a.conns, fewConns), 0
	if cfg.ConnConfig.ConnectTimeout == 0 || cfg.ConnConfig.ConnectTimeout > time.Minute {
		cfg.ConnConfig.ConnectTimeout = connectTimeout
	}
	if cfg.ConnConfig.RuntimeParams["application_name"] == "" {
		cfg.ConnConfig.RuntimeParams["application_name"] = "kagzi"
	}
	a.pool, err = pgxpool.NewWithConfig(ctx, cfg)
	return a.pool, err
}

// source returns the connection string, and what people call the place that it comes from.
func (a *app) source() (url, from string) {
	if a.url != "" {
		return a.url, "--database-url"
	}
	if url := a.world.env("KAGZI_DATABASE_URL"); url != "" {
		return url, "KAGZI_DATABASE_URL"
	}
	return "", "PGHOST, PGUSER, PGDATABASE and the like"
}

func (a *app) hasPostgresVariables() bool {
	for _, name := range postgresVariables {
		if a.world.env(name) != "" {
			return true
		}
	}
	return false
}

// client opens the pool and returns a client of the namespace.
func (a *app) client(ctx context.Context) (*kagzi.Client, error) {
	pool, err := a.open(ctx)
	if err != nil {
		return nil, err
	}
	return a.clientOf(pool)
}

// sender returns a client for a command that sends a payload. It refuses to if the namespace's programs could not read
// it.
func (a *app) sender(ctx context.Context) (*kagzi.Client, error) {
	c, err := a.client(ctx)
	if err == nil {
		err = c.CheckSealer(ctx)
	}
	return c, err
}

// namespaceName returns the namespace that the command is about.
func (a *app) namespaceName() string {
	return cmp.Or(a.namespace, a.world.env("KAGZI_NAMESPACE"), "default")
}

func (a *app) clientOf(pool *pgxpool.Pool) (*kagzi.Client, error) {
	c, err := kagzi.NewClient(pool, kagzi.ClientConfig{
		Namespace: a.namespaceName(),
		Codec:     a.world.Codec,
		Sealer:    a.world.Sealer,
		Logger:    slog.New(slog.NewTextHandler(io.Discard, nil)), // a command's errors say what matters
	})
	if err != nil {
		return nil, usagef("%s", err)
	}
	return c, nil
}

// connectionError returns an error of pgx as one that names no user, no password and no connection string. It returns
// other errors unchanged.
func (a *app) connectionError(err error) error {
	if _, done := errors.AsType[*connectError](err); done {
		return err
	}
	_, from := a.source()
	_, connecting := errors.AsType[*pgconn.ConnectError](err)
	_, network := errors.AsType[*net.OpError](err)
	_, dns := errors.AsType[*net.DNSError](err)
	if _, parsing := errors.AsType[*pgconn.ParseConfigError](err); parsing {
		return usagef("the database in %s cannot be read: write postgres://user:password@host:5432/database, with "+
			"special characters of the password as %%xx", from)
	}
	if !connecting && !network && !dns {
		return err
	}
	return &connectError{fmt.Sprintf("cannot connect to %s: %s: %s", a.server(), store.Reason(err),
		connectAdvice(err, from)), err}
}

// server returns host and port of the server, for people.
func (a *app) server() string {
	if a.pool == nil || a.pool.Config().ConnConfig.Host == "" {
		return "the server"
	}
	c := a.pool.Config().ConnConfig
	if strings.HasPrefix(c.Host, "/") {
		return fmt.Sprintf("the socket in %s for port %d", c.Host, c.Port)
	}
	return net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))
}

// A connectError says why there is no connection, in a text that anybody may see.
type connectError struct {
	text string
	err  error
}

func (e *connectError) Error() string { return e.text }
func (e *connectError) Unwrap() error { return e.err }

// connectAdvice says what to do about an error of a connection.
func connectAdvice(err error, from string) string {
	pe, _ := errors.AsType[*pgconn.PgError](err)
	code := ""
	if pe != nil {
		code = pe.Code
	}
	switch {
	case code == "3D000":
		return "correct the database in " + from + ", or create it with createdb"
	case strings.HasPrefix(code, "28"):
		return "correct user and password in " + from + ", or let the user log in (CREATE ROLE, pg_hba.conf)"
	case code == "53300":
		return "end other connections, or raise the server's max_connections"
	case pe != nil:
		return "see the server's log"
	}
	if advice := store.Advice(err); advice != "" {
		return strings.Replace(advice, "the pool's connection string", from, 1)
	}
	return "is it running, and are host and port in " + from + " right?"
}

// redact removes the connection string and the password from a text that is to be shown. Kagzi's own texts have
// neither; this is for those of others.
func (a *app) redact(s string) string {
	const mark = "***"
	// other texts are no URL, and may be part of words
	if url, _ := a.source(); len(url) > 3 && strings.ContainsAny(url, ":=@/") {
		s = strings.ReplaceAll(s, url, mark)
	}
	if a.pool != nil {
		if password := a.pool.Config().ConnConfig.Password; len(password) > 3 { // a shorter one is part of words
			s = strings.ReplaceAll(s, password, mark)
		}
	}
	return s
}

package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/store"
)

// connectTimeout is how long a server may take to answer, unless the connection string has a connect_timeout.
const connectTimeout = 10 * time.Second

// FewConns is the size of the pool unless a command asks for another: a command has few calls at once, and a health
// check needs a free connection.
const FewConns = 4

// postgresVariables are those of libpq that say where a database is.
var postgresVariables = []string{"PGHOST", "PGHOSTADDR", "PGPORT", "PGDATABASE", "PGUSER", "PGSERVICE"}

// A Database is the connections of a command.
type Database struct {
	Conns int32         // the size of the pool; zero: FewConns
	Pool  *pgxpool.Pool // Dial opens it

	world World
	url   string // --database-url
	other string // of a second database: the place that its connection string comes from
}

// Other returns a second database. Its connection string is url, or the value of a variable.
func (p *Program) Other(url, flag, variable string) (*Database, error) {
	d := &Database{world: p.World, url: url, other: flag}
	if url == "" {
		d.url, d.other = p.World.env(variable), variable
	}
	if d.url == "" {
		return nil, Usagef("no second database is given: give %s, or set %s", flag, variable)
	}
	return d, nil
}

// Close closes the pool.
func (d *Database) Close() {
	if d.Pool != nil {
		d.Pool.Close()
	}
}

// Open opens the pool and checks that the server answers.
func (d *Database) Open(ctx context.Context) (*pgxpool.Pool, error) {
	if d.Pool != nil {
		return d.Pool, nil
	}
	pool, err := d.Dial(ctx)
	if err == nil {
		err = pool.Ping(ctx)
	}
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return pool, d.ConnectionError(err)
}

// Dial makes the pool, and sends nothing.
func (d *Database) Dial(ctx context.Context) (*pgxpool.Pool, error) {
	url, _ := d.Source()
	if url == "" && !d.hasPostgresVariables() {
		return nil,
			Usagef("no database is given: set KAGZI_DATABASE_URL=postgres://user:password@host:5432/database, or " +
				"PGHOST, PGUSER and PGDATABASE")
	}
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns, cfg.MinConns = cmp.Or(d.Conns, FewConns), 0
	if cfg.ConnConfig.ConnectTimeout == 0 || cfg.ConnConfig.ConnectTimeout > time.Minute {
		cfg.ConnConfig.ConnectTimeout = connectTimeout
	}
	if cfg.ConnConfig.RuntimeParams["application_name"] == "" {
		cfg.ConnConfig.RuntimeParams["application_name"] = "kagzi"
	}
	d.Pool, err = pgxpool.NewWithConfig(ctx, cfg)
	return d.Pool, err
}

// Source returns the connection string, and what people call the place that it comes from.
func (d *Database) Source() (url, from string) {
	if d.url != "" {
		return d.url, cmp.Or(d.other, "--database-url")
	}
	if url := d.world.env("KAGZI_DATABASE_URL"); url != "" {
		return url, "KAGZI_DATABASE_URL"
	}
	return "", "PGHOST, PGUSER, PGDATABASE and the like"
}

func (d *Database) hasPostgresVariables() bool {
	for _, name := range postgresVariables {
		if d.world.env(name) != "" {
			return true
		}
	}
	return false
}

// ConnectionError returns an error of pgx as one that names no user, no password and no connection string. It returns
// other errors unchanged.
func (d *Database) ConnectionError(err error) error {
	if _, done := errors.AsType[*connectError](err); done {
		return err
	}
	_, from := d.Source()
	_, connecting := errors.AsType[*pgconn.ConnectError](err)
	_, network := errors.AsType[*net.OpError](err)
	_, dns := errors.AsType[*net.DNSError](err)
	if _, parsing := errors.AsType[*pgconn.ParseConfigError](err); parsing {
		return Usagef("the database in %s cannot be read: write postgres://user:password@host:5432/database, with "+
			"special characters of the password as %%xx", from)
	}
	if !connecting && !network && !dns {
		return err
	}
	return &connectError{fmt.Sprintf("cannot connect to %s: %s: %s", d.Server(), store.Reason(err),
		connectAdvice(err, from)), err}
}

// Server returns host and port of the server, for people.
func (d *Database) Server() string {
	if d.Pool == nil || d.Pool.Config().ConnConfig.Host == "" {
		return "the server"
	}
	c := d.Pool.Config().ConnConfig
	if strings.HasPrefix(c.Host, "/") {
		return fmt.Sprintf("the socket in %s for port %d", c.Host, c.Port)
	}
	return net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))
}

// A connectError says why there is no connection, in a text that has no secrets.
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

// Redact removes the connection string and the password from a text that is to be shown. Kagzi's own texts have
// neither; this is for those of others.
func (d *Database) Redact(s string) string {
	const mark = "***"
	// other texts are no URL, and may be part of words
	if url, _ := d.Source(); len(url) > 3 && strings.ContainsAny(url, ":=@/") {
		s = strings.ReplaceAll(s, url, mark)
	}
	if d.Pool != nil {
		if password := d.Pool.Config().ConnConfig.Password; len(password) > 3 { // a shorter one is part of words
			s = strings.ReplaceAll(s, password, mark)
		}
	}
	return s
}

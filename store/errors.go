package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/internal/text"
)

// ErrMoved reports a write in a namespace that moves to another database, or has moved there.
var ErrMoved = pg.ErrMoved

// Reason returns the text of err in one line that a report may show to all readers. It leaves out addresses, users and
// databases, which pgx's errors and some of the server's name.
func Reason(err error) string {
	var pe *pgconn.PgError
	var op *net.OpError
	var ce *pgconn.ConnectError
	var pc *pgconn.ParseConfigError
	switch {
	case errors.As(err, &pe) && pe.Code == noDatabase:
		return "the server has no such database (SQLSTATE 3D000)"
	case errors.As(err, &pe) && strings.HasPrefix(pe.Code, badLogin):
		return fmt.Sprintf("the server refuses the user or the password (SQLSTATE %s)", pe.Code)
	case errors.As(err, &pe) && confidential(pe.Code):
		return fmt.Sprintf("the server refused (SQLSTATE %s)", pe.Code)
	case errors.As(err, &pe):
		return fmt.Sprintf("%s (SQLSTATE %s)", text.OneLine(pe.Message), pe.Code)
	case pg.Closed(err):
		return "the pool was closed"
	case errors.Is(err, context.Canceled):
		return "the query was cancelled"
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	case unknownHost(err):
		return "the server's host is unknown"
	case tlsRefused(err):
		return "the server refuses TLS"
	case errors.As(err, &op):
		return text.OneLine(op.Err.Error())
	case errors.As(err, &ce), errors.As(err, &pc):
		return "no connection could be made"
	default:
		return text.OneLine(err.Error())
	}
}

// confidential reports whether messages with this SQLSTATE may name users, databases or addresses.
func confidential(code string) bool {
	return strings.HasPrefix(code, badLogin) || strings.HasPrefix(code, "3D") || strings.HasPrefix(code, "42")
}

const (
	noDatabase = "3D000"
	badLogin   = "28" // the class of SQLSTATEs that refuse a login
)

// Advice says what to do about an error that waiting does not mend, because a connection can never be made. For other
// errors it is empty.
func Advice(err error) string {
	_, connecting := errors.AsType[*pgconn.ConnectError](err)
	switch c := pg.Code(err); {
	case c == noDatabase:
		return "correct the database in the pool's connection string, or create it and call kagzi.Migrate"
	case strings.HasPrefix(c, badLogin):
		return "correct user and password in the pool's connection string, or let the user log in (CREATE ROLE, " +
			"pg_hba.conf)"
	case c == "42501" && connecting:
		return "GRANT CONNECT ON DATABASE to the user"
	case c == "53300":
		return "raise the server's max_connections, or lower pool_max_conns"
	case pg.Closed(err):
		return "give NewClient a pool that stays open until its workers have ended"
	case unknownHost(err):
		return "correct the host in the pool's connection string"
	case tlsRefused(err):
		return "correct sslmode in the pool's connection string"
	}
	return ""
}

func unknownHost(err error) bool {
	e, ok := errors.AsType[*net.DNSError](err)
	return ok && e.IsNotFound
}

// tlsRefused reports whether the server speaks no TLS and the connection string asks for it. pgx has no type for that
// error. With sslmode=prefer, its default, pgx tries again without TLS: then the error of that try counts.
func tlsRefused(err error) bool {
	e, connecting := errors.AsType[*pgconn.ConnectError](err)
	if !connecting {
		return false
	}
	tries := []error{e.Unwrap()}
	if all, several := e.Unwrap().(interface{ Unwrap() []error }); several {
		tries = all.Unwrap()
	}
	return !slices.ContainsFunc(tries, func(err error) bool {
		return !strings.Contains(err.Error(), "server refused TLS connection")
	})
}

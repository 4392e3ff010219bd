package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

func TestReasonNamesNoSecrets(t *testing.T) {
	t.Parallel()
	_, unreadable := pgx.ParseConfig("postgres://ada:secret@db.example:port/shop")
	for want, err := range map[string]error{
		"the server refuses the user or the password (SQLSTATE 28P01)": &pgconn.PgError{Code: "28P01", Message: `password authentication failed for user "ada"`},
		"the server has no such database (SQLSTATE 3D000)":             &pgconn.PgError{Code: "3D000", Message: `database "shop" does not exist`},
		"the server refused (SQLSTATE 42501)":                          &pgconn.PgError{Code: "42501", Message: "permission denied"},
		"no space left on device; look (SQLSTATE 53100)":               &pgconn.PgError{Code: "53100", Message: "no space left on device\nlook"},
		"the pool was closed":                                          errors.New("closed pool"),
		"the query was cancelled":                                      fmt.Errorf("ask: %w", context.Canceled),
		"no answer in time":                                            fmt.Errorf("ask: %w", context.DeadlineExceeded),
		"connection refused":                                           fmt.Errorf("dial: %w", &net.OpError{Op: "dial", Addr: &net.TCPAddr{Port: 5432}, Err: errors.New("connection refused")}),
		"no connection could be made":                                  unreadable,
		"something else …":                                             errors.New("something else\n\nwith a stack"),
	} {
		if got := Reason(err); got != want {
			t.Errorf("Reason(%v) = %q; want %q", err, got, want)
		}
	}
}

package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

func TestReasonNamesNoSecrets(t *testing.T) {
	t.Parallel()
	_, unreadable := pgx.ParseConfig("postgres://ada:secret@db.example:port/shop")
	for want, err := range map[string]error{
		"the server refuses the user or the password (SQLSTATE 28P01)": &pgconn.PgError{
			Code:    "28P01",
			Message: `password authentication failed for user "ada"`,
		},
		"the server has no such database (SQLSTATE 3D000)": &pgconn.PgError{
			Code:    "3D000",
			Message: `database "shop" does not exist`,
		},
		"the server refused (SQLSTATE 42501)": &pgconn.PgError{Code: "42501", Message: "permission denied"},
		"no space left on device; look (SQLSTATE 53100)": &pgconn.PgError{
			Code:    "53100",
			Message: "no space left on device\nlook",
		},
		"the pool was closed":     errors.New("closed pool"),
		"the query was cancelled": fmt.Errorf("ask: %w", context.Canceled),
		"no answer in time":       fmt.Errorf("ask: %w", context.DeadlineExceeded),
		"connection refused": fmt.Errorf("dial: %w", &net.OpError{
			Op: "dial", Addr: &net.TCPAddr{Port: 5432},
			Err: errors.New("connection refused"),
		}),
		"no connection could be made": unreadable,
		"something else …":            errors.New("something else\n\nwith a stack"),
	} {
		if got := Reason(err); got != want {
			t.Errorf("Reason(%v) = %q; want %q", err, got, want)
		}
	}
}

// TestTimeoutsAreNotExplainedAsTLS connects to a server that speaks no TLS and answers nothing else. Only who insists
// on TLS has a wrong sslmode.
func TestTimeoutsAreNotExplainedAsTLS(t *testing.T) {
	t.Parallel()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { conn.Close() })
			go func() {
				asked := make([]byte, 8)
				if _, err := conn.Read(asked); err == nil && asked[4] == 4 && asked[5] == 210 { // SSLRequest
					_, _ = conn.Write([]byte("N"))
				}
			}()
		}
	}()
	for mode, want := range map[string]struct{ reason, advice string }{
		"prefer":  {"no answer in time", ""},
		"require": {"the server refuses TLS", "correct sslmode"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := pgx.Connect(ctx, fmt.Sprintf("postgres://ada@%s/shop?sslmode=%s", server.Addr(), mode))
		if got := Reason(err); got != want.reason {
			t.Errorf("%s: Reason(%v) = %q; want %q", mode, err, got, want.reason)
		}
		if got := Advice(err); (got == "") != (want.advice == "") || !strings.HasPrefix(got, want.advice) {
			t.Errorf("%s: Advice(%v) = %q; want %q", mode, err, got, want.advice)
		}
	}
}

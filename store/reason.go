package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/kagzi/kagzi/internal/text"
)

// Reason returns the text of err in one line that a report may show to anybody. It leaves out addresses, users and databases,
// which pgx's errors and some of the server's name.
func Reason(err error) string {
	var pe *pgconn.PgError
	var op *net.OpError
	var ce *pgconn.ConnectError
	var pc *pgconn.ParseConfigError
	switch {
	case errors.As(err, &pe) && confidential(pe.Code):
		return fmt.Sprintf("the server refused (SQLSTATE %s)", pe.Code)
	case errors.As(err, &pe):
		return fmt.Sprintf("%s (SQLSTATE %s)", text.OneLine(pe.Message), pe.Code)
	case Closed(err):
		return "the pool was closed"
	case errors.Is(err, context.Canceled):
		return "the query was cancelled"
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
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
	return strings.HasPrefix(code, "28") || strings.HasPrefix(code, "3D") || strings.HasPrefix(code, "42")
}

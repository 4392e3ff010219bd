package kit

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Refusals is a tracer of connections. It calls report with the name of each fenced write that changed nothing:
// "record", "suspend" or "finish". So the lease was lost, or the write was there already.
func Refusals(report func(write string)) pgx.QueryTracer { return refusals{report} }

// fencedWrites are the names of the writes that need a lease, by a part of their statements.
var fencedWrites = map[string]string{
	"INSERT INTO kagzi.step_runs AS s":            "record",
	"SET status = locked.status,\n\tavailable_at": "suspend",
	"output = u.output":                           "finish",
	"u.status, u.output":                          "finish",
}

type refusals struct{ report func(write string) }

func (r refusals) check(sql string, rows int64) {
	for part, name := range fencedWrites {
		if rows == 0 && strings.Contains(sql, part) {
			r.report(name)
		}
	}
}

type tracedSQL struct{}

func (r refusals) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	return context.WithValue(ctx, tracedSQL{}, d.SQL)
}

func (r refusals) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryEndData) {
	if sql, ok := ctx.Value(tracedSQL{}).(string); ok && d.Err == nil {
		r.check(sql, d.CommandTag.RowsAffected())
	}
}

func (r refusals) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (r refusals) TraceBatchQuery(_ context.Context, _ *pgx.Conn, d pgx.TraceBatchQueryData) {
	if d.Err == nil {
		r.check(d.SQL, d.CommandTag.RowsAffected())
	}
}

func (r refusals) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

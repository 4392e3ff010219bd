// Package sql has statements that are made of constants, and others.
package sql

import (
	"context"
	"fmt"
	"strings"
)

type db struct{}

func (db) Exec(ctx context.Context, sql string, args ...any) error { return nil }

const get = "SELECT 1"

var replaced = strings.ReplaceAll(get, "1", "2")

type statement struct {
	sql, other string
}

var statements = map[string]statement{"get": {sql: get}, "all": {"SELECT " + "*", ""}}

func send(ctx context.Context, d db, sql string, name string) error { return d.Exec(ctx, sql, name) }

func columns(table string) string { return "SELECT * FROM " + table }

func good(ctx context.Context, d db, name string, n int) {
	_ = d.Exec(ctx, get, name)
	_ = d.Exec(ctx, replaced)
	_ = send(ctx, d, get, name)
	_ = d.Exec(ctx, columns("t"))
	_ = d.Exec(ctx, statements["get"].sql)
	_ = d.Exec(ctx, fmt.Sprintf("SELECT %d", n))
	for _, sql := range []string{"SELECT 1", get} {
		_ = d.Exec(ctx, sql)
	}
	local := func(sql string) error { return d.Exec(ctx, sql) }
	_ = local(get)
}

func badConcat(ctx context.Context, d db, names chan string) {
	name := <-names
	_ = d.Exec(ctx, "SELECT '"+name+"'")
}

func badFormat(ctx context.Context, d db, names chan string) {
	name := <-names
	_ = d.Exec(ctx, fmt.Sprintf("SELECT %s", name))
}

func badArgument(ctx context.Context, d db, names chan string) {
	name := <-names
	_ = send(ctx, d, name, "")
}

func badAssigned(ctx context.Context, d db, names chan string) {
	sql := get
	sql += <-names
	_ = d.Exec(ctx, sql)
}

func badClosure(ctx context.Context, d db, names chan string) {
	local := func(sql string) error { return d.Exec(ctx, sql) }
	name := <-names
	_ = local("SELECT " + name)
}

type other struct{ sql string }

func badField(ctx context.Context, d db, names chan string) {
	name := <-names
	o := other{sql: name}
	_ = d.Exec(ctx, o.sql)
}

func query(name string) string { return "SELECT " + name }

func badResult(ctx context.Context, d db, names chan string) { _ = d.Exec(ctx, query(<-names)) }

func badBuilder(ctx context.Context, d db, names chan string) {
	var b strings.Builder
	b.WriteString(<-names)
	_ = d.Exec(ctx, b.String())
}

// Any code may call it.
func BadExported(ctx context.Context, d db, name string) { _ = send(ctx, d, "SELECT "+name, "") }

func sender(ctx context.Context, d db, sql string) error { return d.Exec(ctx, sql) }

var badValue = sender

func constants() (sql string) {
	sql = get
	return sql
}

func results(ctx context.Context, d db) { _ = d.Exec(ctx, constants()) }

package store

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

// The ends of messages: how to rewrite a statement that breaks a rule.
const (
	inCTE = ": compute it in a CTE that is MATERIALIZED, and copy its column (WITH t AS MATERIALIZED (SELECT " +
		"clock_timestamp() AS now) UPDATE … SET x = t.now FROM t)"
	byName = ": add that condition to the same SELECT, UPDATE or DELETE, with the argument and not another " +
		"table's column; a recursive CTE needs it in both parts"
	valueName = ": write $1 for it in VALUES or the SELECT"
	asText    = " (a text is appended to a text alone: cast the other one, ::text)"
	apart     = ", wherever those are: read it by a statement of its own, and compare in Go"
	byKey     = ": join by the primary key"
	twoSteps  = ": read the keys by a statement of their own, and insert with unnest"
	castText  = ": cast it, ::text"
	twoForms  = ": write a statement for each case"
	noSelect  = ": compare excluded's columns with those of the row"
)

// instead returns how to rewrite a call of a stable function.
func instead(f function) string {
	if f.name == "textanycat" || f.name == "anytextcat" {
		return asText
	}
	return inCTE
}

// A scope is a query and the queries around it. A column's varlevelsup counts in which of them its table is.
type scope struct {
	query *treeNode
	outer *scope
}

func (s *scope) up(n int) *scope {
	for ; n > 0 && s != nil; n-- {
		s = s.outer
	}
	return s
}

// table returns the n-th table of the query, counted from one; nil if there is none.
func (s *scope) table(n string) *treeNode {
	i, _ := strconv.Atoi(n)
	if tables := s.query.list("rtable"); i > 0 && i <= len(tables) {
		return tables[i-1]
	}
	return nil
}

// wrong returns the ways in which a statement breaks the rules for tables that are distributed by namespace_id.
func (c *catalog) wrong(statement *treeNode) []string {
	r := &rules{catalog: c}
	r.query(statement, nil)
	if r.changes && r.recursive {
		r.add("WITH RECURSIVE stands in a statement that changes rows%s", twoSteps)
	}
	if r.ours {
		for _, name := range r.state {
			r.add("%s is of the server that has the rows%s", name, apart)
		}
	}
	slices.Sort(r.found)
	return slices.Compact(r.found)
}

// rangeFunction is the server's number for a function in FROM.
const rangeFunction = "3"

// wrongSpread returns the ways in which a statement breaks the rule for statements that each server runs on its own
// rows: a sub-select with a function in FROM uses nothing of the queries around it.
func (c *catalog) wrongSpread(statement *treeNode) (found []string) {
	var query func(q *treeNode, depth int)
	query = func(q *treeNode, depth int) {
		isFunction := func(table *treeNode) bool { return table.text("rtekind") == rangeFunction }
		if depth > 0 && slices.ContainsFunc(q.list("rtable"), isFunction) && usesOuter(q, 0) {
			found = append(found, "a function stands in FROM of a correlated sub-select: search the table itself, and "+
				"compare with an operator")
		}
		var each func(n *treeNode)
		each = func(n *treeNode) {
			if n.kind == "QUERY" {
				query(n, depth+1)
				return
			}
			n.children(each)
		}
		q.children(each)
	}
	query(statement, 0)
	return found
}

// usesOuter reports whether a column of a query around q, which is depth levels below it, stands in n.
func usesOuter(n *treeNode, depth int) (uses bool) {
	n.children(func(c *treeNode) {
		up, _ := strconv.Atoi(c.text("varlevelsup"))
		below := depth
		if c.kind == "QUERY" {
			below++
		}
		uses = uses || c.kind == "VAR" && up > depth || usesOuter(c, below)
	})
	return uses
}

type rules struct {
	*catalog
	found []string // messages
	ours  bool     // the statement reads or writes a table of ours
	state []string // the server state that the statement reads, see serverState

	changes, recursive bool // the statement changes rows; it has a recursive CTE
}

func (r *rules) add(format string, args ...any) {
	r.found = append(r.found, fmt.Sprintf(format, args...))
}

// query checks a query and all queries in it.
func (r *rules) query(q *treeNode, outer *scope) {
	s := &scope{q, outer}
	r.namespaces(s)
	r.recursive = r.recursive || q.text("hasRecursive") == "true"
	command := q.text("commandType")
	if command == cmdUpdate || command == cmdDelete || command == cmdInsert {
		r.changes = true
		r.modifies(s, command)
	}
	for _, e := range q.list("targetList") {
		if outer != nil && typeOf(e.node("expr")) == voidType {
			r.add("%s has the type void%s", cmp.Or(e.text("resname"), "a column"), castText)
		}
	}
	var each func(n *treeNode)
	each = func(n *treeNode) {
		if n.kind == "QUERY" {
			r.query(n, s)
			return
		}
		for _, f := range r.functions(n) {
			if serverState[f.name] {
				r.state = append(r.state, f.name)
			}
		}
		n.children(each)
	}
	q.children(each)
}

// The server's number for a type, and for the first column that each row has.
const (
	voidType   = "2278"
	ctidColumn = "-1"
)

// The server's numbers for the kinds of statements.
const (
	cmdSelect = "1"
	cmdUpdate = "2"
	cmdInsert = "3"
	cmdDelete = "4"
)

// modifies checks the expressions that an UPDATE, DELETE or INSERT writes and returns.
func (r *rules) modifies(s *scope, command string) {
	q := s.query
	target := r.relations[s.table(q.text("resultRelation")).text("relid")]
	if command != cmdInsert {
		for _, e := range q.list("targetList") {
			r.computed("SET "+target.columns[e.text("resno")], e.node("expr"), s)
		}
		quals := q.node("jointree").node("quals")
		r.computed("WHERE", quals, s)
		if r.has(quals, s, func(n *treeNode) bool { return n.kind == "VAR" && n.text("varattno") == ctidColumn }) {
			r.add("WHERE: a row is found by its ctid%s", byKey)
		}
	}
	for _, e := range q.list("returningList") {
		r.mutable("RETURNING", "", e.node("expr"), s)
	}
	if conflict := q.node("onConflict"); conflict != nil {
		for _, e := range conflict.list("onConflictSet") {
			r.mutable("DO UPDATE SET "+target.columns[e.text("resno")], "", e.node("expr"), s)
		}
		r.mutable("DO UPDATE WHERE", "", conflict.node("onConflictWhere"), s)
		if r.has(conflict, s, func(n *treeNode) bool { return n.kind == "QUERY" }) {
			r.add("ON CONFLICT has a sub-select%s", noSelect)
		}
		if r.has(conflict, s, func(n *treeNode) bool { return n.kind == "PARAM" }) {
			r.add("ON CONFLICT has an argument%s", twoForms)
		}
	}
}

// computed checks an expression that an UPDATE or DELETE computes for each row.
func (r *rules) computed(where string, n *treeNode, s *scope) {
	r.each(n, s, func(n *treeNode, _ *scope) bool {
		for _, f := range r.functions(n) {
			if f.volatility == "v" {
				r.add("%s: %s() is volatile%s", where, f.name, inCTE)
			}
		}
		return true
	})
	r.each(n, s, func(n *treeNode, s *scope) bool {
		switch n.kind {
		case "CASE":
			r.mutable(where, " and stands in CASE", n, s)
			return false
		case "COALESCE":
			r.mutable(where, " and stands in coalesce", n, s)
			return false
		case "QUERY":
			return false
		}
		for _, f := range r.functions(n) {
			if f.volatility == "s" && r.hasColumn(n, s) {
				r.add("%s: %s() is stable, and its argument a column%s", where, f.name, instead(f))
			}
		}
		return true
	})
}

// mutable checks an expression that may call only immutable functions.
func (r *rules) mutable(where, why string, n *treeNode, s *scope) {
	r.each(n, s, func(n *treeNode, _ *scope) bool {
		for _, f := range r.functions(n) {
			if f.volatility == "s" {
				r.add("%s: %s() is stable%s%s", where, f.name, why, instead(f))
			} else if f.volatility == "v" {
				r.add("%s: %s() is volatile%s", where, f.name, inCTE)
			}
		}
		return true
	})
}

func (r *rules) hasColumn(n *treeNode, s *scope) bool {
	return r.has(n, s, func(n *treeNode) bool { return n.kind == "VAR" })
}

// has reports whether is holds for a node of n that is not in a sub-select, or for the sub-select.
func (r *rules) has(n *treeNode, s *scope, is func(*treeNode) bool) (has bool) {
	r.each(n, s, func(n *treeNode, _ *scope) bool {
		has = has || is(n)
		return n.kind != "QUERY"
	})
	return has
}

// each calls f for n and the nodes below it. It does not descend below a node for which f returns false. Instead of a
// column of a sub-select it visits the expression that the sub-select computes for it, as the planner does.
func (r *rules) each(n *treeNode, s *scope, f func(*treeNode, *scope) bool) {
	if n == nil {
		return
	}
	if n.kind == "VAR" {
		if sub, in := r.behind(n, s); sub != nil {
			r.each(sub, in, f)
			return
		}
	}
	if !f(n, s) {
		return
	}
	if n.kind == "QUERY" {
		s = &scope{n, s}
	}
	n.children(func(c *treeNode) { r.each(c, s, f) })
}

// behind returns the expression that a column of a sub-select stands for; nil for a column of another table.
func (r *rules) behind(v *treeNode, s *scope) (*treeNode, *scope) {
	up, _ := strconv.Atoi(v.text("varlevelsup"))
	if s = s.up(up); s == nil {
		return nil, nil
	}
	table := s.table(v.text("varno"))
	if table == nil || table.node("subquery") == nil {
		return nil, nil
	}
	for _, e := range table.node("subquery").list("targetList") {
		if e.text("resno") == v.text("varattno") {
			return e.node("expr"), &scope{table.node("subquery"), s}
		}
	}
	return nil, nil
}

// namespaces checks that the query filters each of our tables by the namespace.
func (r *rules) namespaces(s *scope) {
	q := s.query
	filtered := map[string]bool{}
	var conditions func(n *treeNode)
	conditions = func(n *treeNode) {
		switch {
		case n == nil:
		case n.kind == "BOOL" && n.text("boolop") == "and":
			n.children(conditions)
		case n.kind == "OP" && r.functionsByID[n.text("opfuncid")].name == "texteq":
			if args := n.list("args"); len(args) == 2 {
				r.filter(filtered, s, args[0], args[1])
				r.filter(filtered, s, args[1], args[0])
			}
		case n.kind == "FROM" || n.kind == "JOIN":
			conditions(n.node("quals"))
			n.children(func(c *treeNode) {
				if c.kind == "FROM" || c.kind == "JOIN" {
					conditions(c)
				}
			})
		}
	}
	conditions(q.node("jointree"))
	excluded := ""
	if conflict := q.node("onConflict"); conflict != nil {
		excluded = conflict.text("exclRelIndex")
	}
	for i, table := range q.list("rtable") {
		number := strconv.Itoa(i + 1)
		rel := r.relations[table.text("relid")]
		if serverState[rel.name] && rel.schema == "pg_catalog" {
			r.state = append(r.state, rel.name)
		}
		if rel.namespace == "" || number == excluded {
			continue
		}
		r.ours = true
		switch {
		case q.text("commandType") == cmdInsert && number == q.text("resultRelation"):
			if !r.inserts(s, rel) {
				r.add("INSERT INTO kagzi.%s does not set namespace_id to $n%s", rel.name, valueName)
			}
		case !filtered[number]:
			alias := rel.name
			if a := table.node("eref"); a != nil {
				alias = a.text("aliasname")
			}
			r.add("kagzi.%s %s is not filtered by %s.namespace_id = $n%s", rel.name, alias, alias, byName)
		}
	}
}

// filter adds the table whose namespace_id is compared with an argument.
func (r *rules) filter(filtered map[string]bool, s *scope, column, argument *treeNode) {
	if column.kind != "VAR" || column.text("varlevelsup") != "0" || argument.kind != "PARAM" {
		return
	}
	if table := s.table(column.text("varno")); table != nil &&
		r.relations[table.text("relid")].namespace == column.text("varattno") {
		filtered[column.text("varno")] = true
	}
}

// inserts reports whether the INSERT sets namespace_id to an argument, or to that of a table of ours, which is filtered
// by an argument: else namespaces finds it.
func (r *rules) inserts(s *scope, rel relation) bool {
	for _, e := range s.query.list("targetList") {
		if e.text("resno") != rel.namespace {
			continue
		}
		value := e.node("expr")
		for in := s; value != nil && value.kind == "VAR"; {
			sub, inside := r.behind(value, in)
			if sub == nil {
				return r.isNamespace(value, in)
			}
			value, in = sub, inside
		}
		return value != nil && value.kind == "PARAM"
	}
	return false
}

// isNamespace reports whether a column is the namespace_id of a table of ours.
func (r *rules) isNamespace(v *treeNode, s *scope) bool {
	up, _ := strconv.Atoi(v.text("varlevelsup"))
	if s = s.up(up); s == nil {
		return false
	}
	table := s.table(v.text("varno"))
	if table == nil {
		return false
	}
	column := r.relations[table.text("relid")].namespace
	return column != "" && column == v.text("varattno")
}

// serverState holds the functions and views whose results differ from server to server.
var serverState = map[string]bool{
	"pg_stat_activity": true, "pg_locks": true, "pg_prepared_xacts": true, "pg_replication_slots": true,
	"pg_stat_replication": true,
	"pg_stat_user_tables": true, "pg_settings": true,
	"pg_postmaster_start_time": true, "pg_backend_pid": true, "pg_is_in_recovery": true, "inet_server_addr": true,
	"inet_server_port": true,
	"pg_relation_size": true, "pg_notify": true, "set_config": true, "current_setting": true,
	"pg_current_wal_lsn":          true,
	"pg_notification_queue_usage": true, "pg_stat_get_backend_idset": true, "pg_stat_get_backend_dbid": true,
	"pg_stat_get_backend_pid": true, "pg_stat_get_backend_start": true,
}

// ---- the catalog ----

type function struct{ name, volatility string }

type relation struct {
	schema, name string
	columns      map[string]string // by number
	namespace    string            // the number of namespace_id; "" if the table is not ours, or not distributed
}

type catalog struct {
	functionsByID map[string]function
	output, input map[string]string // of types: the functions from and to text
	relations     map[string]relation
}

func readCatalog(t *testing.T, db pg.DB) *catalog {
	t.Helper()
	c := &catalog{
		functionsByID: map[string]function{}, output: map[string]string{}, input: map[string]string{},
		relations: map[string]relation{},
	}
	rows := func(sql string, dest []any, row func()) {
		t.Helper()
		eachRow(t, db, sql, dest, row)
	}
	var id, a, b string
	rows(`SELECT p.oid::text, p.proname::text, p.provolatile::text FROM pg_proc p`, []any{&id, &a, &b},
		func() { c.functionsByID[id] = function{a, b} })
	rows(`SELECT t.oid::text, t.typoutput::oid::text, t.typinput::oid::text FROM pg_type t`, []any{&id, &a, &b},
		func() { c.output[id], c.input[id] = a, b })
	var column, number string
	rows(`
		SELECT c.oid::text, n.nspname::text, c.relname::text, a.attname::text, a.attnum::text
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid
			AND a.attnum > 0
		WHERE n.nspname = 'kagzi' OR n.nspname = 'pg_catalog'
			AND c.relkind = 'v'`, []any{&id, &a, &b, &column, &number}, func() {
		rel, ok := c.relations[id]
		if !ok {
			rel = relation{schema: a, name: b, columns: map[string]string{}}
		}
		rel.columns[number] = column
		if a == "kagzi" && column == "namespace_id" {
			rel.namespace = number
		}
		c.relations[id] = rel
	})
	if len(c.relations) < 10 || len(c.functionsByID) < 1000 {
		t.Fatalf("INVALID: the catalog has %d relations and %d functions", len(c.relations), len(c.functionsByID))
	}
	return c
}

// functions returns the functions that the node itself calls.
func (c *catalog) functions(n *treeNode) (called []function) {
	for _, field := range []string{"funcid", "opfuncid", "aggfnoid", "winfnoid"} {
		if f, ok := c.functionsByID[n.text(field)]; ok {
			called = append(called, f)
		}
	}
	switch n.kind {
	case "COERCEVIAIO":
		if arg := n.node("arg"); arg != nil {
			called = append(called, c.functionsByID[c.output[typeOf(arg)]])
		}
		called = append(called, c.functionsByID[c.input[n.text("resulttype")]])
	case "SQLVALUEFUNCTION":
		called = append(called, function{"CURRENT_TIMESTAMP, or the like,", "s"})
	case "NEXTVALUE":
		called = append(called, function{"nextval", "v"})
	}
	return called
}

// typeOf returns the type of an expression.
func typeOf(n *treeNode) string {
	for _, field := range []string{
		"vartype", "consttype", "paramtype", "funcresulttype", "opresulttype", "resulttype", "casetype", "coalescetype",
		"minmaxtype", "aggtype", "wintype", "type",
	} {
		if t := n.text(field); t != "" {
			return t
		}
	}
	return ""
}

// eachRow calls row for each row of a statement, which it has scanned into dest.
func eachRow(t *testing.T, db pg.DB, sql string, dest []any, row func()) {
	t.Helper()
	rows, _ := db.Query(t.Context(), sql) // the error comes with the rows
	if _, err := pgx.ForEachRow(rows, dest, func() error { row(); return nil }); err != nil {
		t.Fatal(err)
	}
}

package store

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/kagzi/kagzi/internal/dbtest"
)

// A treeNode is a node of a statement as the server understood it: names are resolved to the numbers of the catalog.
type treeNode struct {
	kind   string // in all versions of Postgres: CASE, where newer ones write CASEEXPR
	fields map[string][]any
}

// node returns the field if it is one node, else nil.
func (n *treeNode) node(field string) *treeNode {
	if v := n.fields[field]; len(v) == 1 {
		sub, _ := v[0].(*treeNode)
		return sub
	}
	return nil
}

// list returns the nodes of the field, which is a list.
func (n *treeNode) list(field string) (nodes []*treeNode) {
	if v := n.fields[field]; len(v) == 1 {
		items, _ := v[0].([]any)
		for _, item := range items {
			if sub, ok := item.(*treeNode); ok {
				nodes = append(nodes, sub)
			}
		}
	}
	return nodes
}

// text returns the field if it is a number or a name, else "".
func (n *treeNode) text(field string) string {
	if v := n.fields[field]; len(v) > 0 {
		s, _ := v[0].(string)
		return s
	}
	return ""
}

// children calls f for every node directly below n.
func (n *treeNode) children(f func(*treeNode)) {
	var each func(any)
	each = func(v any) {
		switch v := v.(type) {
		case *treeNode:
			f(v)
		case []any:
			for _, item := range v {
				each(item)
			}
		}
	}
	for _, values := range n.fields {
		each(values)
	}
}

// parseTree reads what the server writes with debug_print_parse.
func parseTree(text string) *treeNode {
	p := &treeParser{rest: text}
	n, _ := p.value(p.next()).(*treeNode)
	return n
}

type treeParser struct{ rest string }

// next returns the next token: a bracket, or a word with its escapes.
func (p *treeParser) next() string {
	p.rest = strings.TrimLeft(p.rest, " \n\t")
	if p.rest == "" {
		return ""
	}
	end := 1
	if !strings.ContainsRune("(){}", rune(p.rest[0])) {
		for end = 0; end < len(p.rest) && !strings.ContainsRune(" \n\t(){}", rune(p.rest[end])); end++ {
			if p.rest[end] == '\\' {
				end++
			}
		}
	}
	token := p.rest[:end]
	p.rest = p.rest[end:]
	return token
}

// value returns the value at token: a node, a list, or a word.
func (p *treeParser) value(token string) any {
	switch token {
	case "(":
		items := []any{}
		for t := p.next(); t != ")" && t != ""; t = p.next() {
			items = append(items, p.value(t))
		}
		return items
	case "{":
		n := &treeNode{kind: strings.TrimSuffix(p.next(), "EXPR"), fields: map[string][]any{}}
		field := ""
		for t := p.next(); t != "}" && t != ""; t = p.next() {
			if strings.HasPrefix(t, ":") {
				field = t[1:]
				continue
			}
			n.fields[field] = append(n.fields[field], p.value(t))
		}
		return n
	}
	return token
}

// understood returns a function that has the server read a statement, and returns what it understood.
func understood(t *testing.T, db *dbtest.DB) func(sql string) *treeNode {
	t.Helper()
	cfg, err := pgx.ParseConfig(db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	var tree string
	cfg.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if n.Message == "parse tree:" {
			tree = n.Detail
		}
	}
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	for _, set := range []string{ // the tree goes to this client, and not to the server's log
		`SET log_min_messages = panic`, `SET debug_pretty_print = off`, `SET client_min_messages = log`,
		`SET debug_print_parse = on`,
	} {
		exec(t, conn, set)
	}
	return func(sql string) *treeNode {
		t.Helper()
		tree = ""
		if _, err := conn.Prepare(t.Context(), "", sql); err != nil {
			t.Fatalf("%v\n%s", err, sql)
		}
		n := parseTree(tree)
		if n == nil || n.kind != "QUERY" {
			t.Fatalf("INVALID: the server did not say how it understands the statement: %.200q", tree)
		}
		return n
	}
}

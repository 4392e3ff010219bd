package inspect

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kagzi/kagzi/internal/pg"
)

// askNodes sends nodeTables to the nodes.
const nodeTables = `
SELECT coalesce(json_agg(t), '[]')::text
FROM (` + tables + `) AS t (name, live, dead, vacuums, since, autovacuum, analyzed, bytes, expected)`

const askNodes = `
SELECT coalesce(n.nodename || ':' || n.nodeport, 'node ' || r.nodeid), r.success, coalesce(r.result, '')
FROM pg_catalog.run_command_on_all_nodes($1) r
LEFT JOIN pg_catalog.pg_dist_node n ON n.nodeid = r.nodeid
ORDER BY 1`

// A Node is a server of a Citus cluster, with its part of Kagzi's tables.
type Node struct {
	Name   string
	Tables []Table // by name, each summed over the node's shards
	Error  string  // why the node did not answer; "" if it did
}

// Nodes asks the nodes of the cluster for their part of Kagzi's tables.
func Nodes(ctx context.Context, db pg.DB) (out []Node, err error) {
	var n Node
	var ok bool
	var result string
	err = list(ctx, db, askNodes, []any{nodeTables}, []any{&n.Name, &ok, &result}, func() {
		n.Tables, n.Error = nil, ""
		if !ok {
			n.Error = result
		} else if n.Tables, err = shards(result); err != nil {
			n.Error = err.Error()
		}
		out = append(out, n)
	})
	return out, pg.Wrap("ask the nodes", err)
}

var shardNumber = regexp.MustCompile(`_[0-9]+$`)

// shards reads a node's answer to nodeTables, and adds up the shards of each table.
func shards(text string) (out []Table, err error) {
	var all []struct {
		Name                                        string
		Live, Dead, Vacuums, Since, Bytes, Expected int64
		Autovacuum, Analyzed                        bool
	}
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return nil, fmt.Errorf("read its answer: %w", err)
	}
	for _, s := range all {
		name := shardNumber.ReplaceAllString(s.Name, "")
		i := slices.IndexFunc(out, func(t Table) bool { return t.Name == name })
		if i < 0 {
			i = len(out)
			out = append(out, Table{Name: name, Autovacuum: true, Analyzed: true})
		}
		t := &out[i]
		t.Live, t.Dead, t.Vacuums, t.Bytes = t.Live+s.Live, t.Dead+s.Dead, t.Vacuums+s.Vacuums, t.Bytes+s.Bytes
		t.ExpectedBytes += s.Expected
		t.SinceVacuum = max(t.SinceVacuum, time.Duration(s.Since)*time.Microsecond)
		t.Autovacuum, t.Analyzed = t.Autovacuum && s.Autovacuum, t.Analyzed && (s.Analyzed || s.Live == 0)
	}
	slices.SortFunc(out, func(a, b Table) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

package test

import (
	_ "embed"
	"fmt"
	"strings"
)

// axe-core examines a page for obstacles for its users. The Content-Security-Policy forbids the page to load
// it, but not the browser's tools.
//
//go:embed testdata/axe-core/axe.min.js
var axeSource string

// A violation is a rule that a page breaks.
type violation struct {
	ID    string
	Help  string
	Nodes []struct {
		Target         []any
		HTML           string
		FailureSummary string
	}
}

const runAxe = `axe.run(document, {
	runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"], resultTypes: ["violations"],
}).then((found) => found.violations.map((v) => ({ID: v.id, Help: v.help, Nodes: v.nodes.slice(0, 4).map((n) => (
	{Target: n.target, HTML: n.html.slice(0, 300), FailureSummary: n.failureSummary}))})))`

// accessible fails the test if the page as it is breaks a rule. what names the state shown.
func (tb *tab) accessible(what string) {
	tb.t.Helper()
	if !eval[bool](tb, `typeof axe === "object"`) {
		eval[bool](tb, axeSource+";true")
	}
	for _, v := range eval[[]violation](tb, runAxe) {
		var text strings.Builder
		for _, n := range v.Nodes {
			fmt.Fprintf(&text, "\n  %v: %s\n    %s", n.Target, n.HTML, strings.ReplaceAll(n.FailureSummary, "\n", " "))
		}
		tb.t.Errorf("%s: %s: %s%s", what, v.ID, v.Help, text.String())
	}
}

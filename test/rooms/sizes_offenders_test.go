package rooms

import (
	"fmt"
	"maps"
	"strings"
)

// sizeOffences break the rules about files, names, types and functions.
func sizeOffences() []offence {
	return append(rootOffences(), append(typeOffences(), functionOffences()...)...)
}

func rootOffences() []offence {
	named := func(text string) map[string]string { return map[string]string{"names.go": "package kagzi\n" + text} }
	withClient := "type Client struct{}\n\ntype Other struct{}\n\nfunc (Other) M() {}\n\nfunc (*Client) m() {}\n\n"
	return []offence{
		{
			rule: "root: files", where: ".", worst: 37, what: "f00.go",
			breaks: numbered(36, "f%02d.go", "package kagzi\n"), keeps: numbered(35, "f%02d.go", "package kagzi\n"),
			another: numbered(50, "internal/f%02d.go", "package internal\n"),
		},
		{
			rule: "root: lines", where: ".", worst: 6001, what: "long.go",
			breaks: map[string]string{"long.go": "package kagzi\n" + strings.Repeat("\n", 5999)},
			keeps:  map[string]string{"long.go": "package kagzi\n" + strings.Repeat("\n", 5998), "a_test.go": "\n\n"},
		},
		{
			rule: "root: exported names", where: ".", worst: 160, what: "names.go",
			breaks: named("type A int\nvar B int\nfunc C() {}\n" + repeat(157, "const D%d = 1")),
			keeps:  named("type A int\nvar B, n A\nfunc C() {}\nfunc (A) M() {}\n" + repeat(156, "const D%d = 1")),
		},
		{
			rule: "root: methods of Client", where: ".", worst: 31, what: "names.go",
			breaks: named(withClient + repeat(31, "func (c *Client) M%d() {}")),
			keeps:  named(withClient + repeat(30, "func (c *Client) M%d() {}")),
		},
		{
			rule: "root: test files", where: ".", worst: 41, what: "f00_test.go",
			breaks: numbered(41, "f%02d_test.go", "package a\n"), keeps: numbered(40, "f%02d_test.go", "package a\n"),
		},
	}
}

func typeOffences() []offence {
	strct := func(n int) string {
		return "package store\n\ntype fmt int\n\ntype Wide struct {\nfmt\n" + repeat(n/2, "a%[1]d, b%[1]d int") + "}\n"
	}
	methods := func(n int) map[string]string {
		text := "package ui\n\ntype all[T any] struct{}\n\n" + repeat(n, "func (a *all[T]) m%d() {}")
		return map[string]string{"ui/go.mod": "", "ui/a.go": text}
	}
	replay := map[string]string{
		"internal/replay/run.go":       "package replay\n\ntype run struct{ field int }\n",
		"internal/replay/run_steps.go": "package replay\n\nfunc (r run) steps() int { return r.field }\n",
		"internal/replay/new.go":       "package replay\n\nvar one = run{field: 1}\n",
		"store/run.go":                 "package store\n\ntype Run struct{ Field int }\n",
		"store/steps.go":               "package store\n\nfunc (r Run) steps() int { return r.Field }\n",
	}
	away := maps.Clone(replay)
	away["internal/replay/steps.go"] = "package replay\n\n" +
		"type wide struct{ *run }\n\nfunc (w wide) more() { w.field += w.run.field }\n"
	seam := func(n int) map[string]string {
		return map[string]string{
			"internal/replay/a.go": "package replay\n\n" + repeat(30, "const A%d = 1"),
			"internal/worker/a.go": "package worker\n\nimport \"github.com/kagzi/kagzi/internal/replay\"\n\n" +
				"var all = []int{\n" + repeat(n, "replay.A%d,") + "replay.A0}\n",
		}
	}
	return []offence{
		{
			rule: "fields of a struct", where: "./...", worst: 17, what: "store: Wide",
			breaks: map[string]string{"store/a.go": strct(16)}, keeps: map[string]string{"store/a.go": strct(14)},
			another: map[string]string{"store/a.go": strings.ReplaceAll(strct(40), "Wide", "Run")}, // a row
		},
		{
			rule: "methods of a type", where: "ui/...", worst: 41, what: "ui: all",
			breaks: methods(41), keeps: methods(40),
		},
		{
			rule: "fields away from home", where: "internal/replay", worst: 2, what: "run.field",
			breaks: away, keeps: replay,
		},
		{
			rule: "names of replay in worker", where: "internal/worker", worst: 26, what: "A0",
			breaks: seam(26), keeps: seam(25),
		},
		{rule: "files in a circle", where: "chaos/...", worst: 7, what: "chaos", breaks: circle(7), keeps: circle(6)},
	}
}

// circle returns a package of so many files of which each calls the next.
func circle(n int) map[string]string {
	files := map[string]string{"chaos/go.mod": "", "chaos/main.go": "package chaos\n\nfunc main() { f0() }\n"}
	for i := range n {
		files[fmt.Sprintf("chaos/f%d.go", i)] = fmt.Sprintf("package chaos\n\nfunc f%d() { f%d() }\n", i, (i+1)%n)
	}
	return files
}

func functionOffences() []offence {
	inStore := func(text string) map[string]string {
		return map[string]string{"store/a.go": "package store\n\n" + text}
	}
	// One, an if with two operators, a for, a range, a case, a case of a select; that of default counts nothing.
	branches := "func f(c chan int, s []int, a, b bool) {\n\tif a && b || a {\n\t}\n\tfor a {\n\t}\n" +
		"\tfor range s {\n\t}\n\tswitch {\n\tcase a, b:\n\tdefault:\n\t}\n" +
		"\tselect {\n\tcase <-c:\n\tdefault:\n\t}\n\tfunc() {\n%s\t}()\n}\n"
	statement := "const part = `one,\n two `\n\nconst whole = `\n\tSELECT %s` + part + `\n`\n"
	return []offence{
		{
			rule: "lines of a function", where: "./...", worst: 81, what: "store/a.go: T.f",
			breaks: inStore("type T int\n\nfunc (T) f() {\n" + strings.Repeat("\n", 79) + "}\n"),
			keeps:  inStore("type T int\n\n// f is\n// long.\nfunc (T) f() {\n" + strings.Repeat("\n", 78) + "}\n"),
		},
		{
			rule: "complexity of a function", where: "./...", worst: 19, what: "store/a.go: f",
			breaks: inStore(fmt.Sprintf(branches, strings.Repeat("\t\tif a {\n\t\t}\n", 11))),
			keeps:  inStore(fmt.Sprintf(branches, strings.Repeat("\t\tif a {\n\t\t}\n", 10))),
		},
		{
			rule: "lines of a statement", where: "./...", worst: 90, what: "store: whole",
			breaks:  inStore(fmt.Sprintf(statement, strings.Repeat("\n\tFROM a", 88))),
			keeps:   inStore(fmt.Sprintf(statement, strings.Repeat("\n\tFROM a", 78))),
			another: inStore("const prose = `Lines" + strings.Repeat("\nof SELECT", 100) + "`\n"),
		},
		{
			rule: "SQL in Replace", where: "./...", worst: 4, what: "store/a.go",
			breaks: inStore("import \"strings\"\n\nconst q = `SELECT 1`\n\n" +
				"var w = strings.Replace(q, `1`, `2`, 1) + strings.ReplaceAll(q, `1`, `2`)\n\n" +
				"var r = strings.NewReplacer(`AND a IS NULL`, ``)\n\nvar v = r.Replace(q)\n"),
			keeps: inStore("import \"strings\"\n\nvar w = strings.Replace(`kagzi.Migrate`, `selected`, `from`, 1)\n"),
		},
		{
			rule: "short CTE names", where: "./...", worst: 3, what: "store/a.go",
			breaks: inStore("const q = `WITH c AS (TABLE a), dd AS NOT MATERIALIZED (TABLE b), e (f) AS (`\n"),
			keeps:  inStore("const q = `WITH due AS (SELECT 1) SELECT x AS y FROM f() AS (a int) WINDOW w AS ()`\n"),
		},
	}
}

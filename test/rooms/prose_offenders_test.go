package rooms

import "strings"

// proseOffences break the rules about lines, comments and documents.
func proseOffences() []offence {
	words := func(n int) string { return strings.Repeat("word ", n) }
	inUI := func(text string) map[string]string {
		return map[string]string{"ui/go.mod": "", "ui/a.go": "package ui\n\n" + text}
	}
	return []offence{
		{
			rule: "lines over 120 columns", where: "ui/...", worst: 3, what: "ui/testdata/a.go",
			breaks: map[string]string{
				"ui/go.mod": "", "ui/a_test.go": "package ui\n\t//" + strings.Repeat("x", 115) + "\n",
				"ui/testdata/a.go": strings.Repeat("//"+strings.Repeat("x", 119)+"\n", 2),
			},
			keeps: map[string]string{
				"ui/go.mod": "", "ui/a_test.go": "package ui\n\t//" + strings.Repeat("x", 114) + "\n",
				"ui/testdata/a.go": "//" + strings.Repeat("ü", 118) + "\n",
			},
		},
		{
			rule: "words of architecture.md", where: "docs", worst: 8001, what: "docs/architecture.md",
			breaks: map[string]string{"docs/architecture.md": words(8001)},
			keeps:  map[string]string{"docs/architecture.md": words(8000)},
		},
		{
			rule: "words of a page", where: "docs", worst: 2501, what: "docs/a.md",
			breaks: map[string]string{"docs/a.md": words(2501), "docs/b.md": words(9)},
			keeps:  map[string]string{"docs/a.md": words(2500), "docs/architecture.md": words(3000)},
		},
		{
			rule: "words of README.md", where: ".", worst: 1101, what: "README.md",
			breaks: map[string]string{"README.md": words(1101)},
			keeps:  map[string]string{"README.md": words(1100), "ui/README.md": words(2000)},
		},
		{
			rule: "words of a doc comment", where: "ui/...", worst: 121, what: "ui/a.go: T.F",
			breaks:  inUI("type T int\n\n// F is\n// " + words(119) + "\nfunc (T) F() {}\n"),
			keeps:   inUI("type T int\n\n// F is\n// " + words(118) + "\nfunc (T) F() {}\n"),
			another: map[string]string{"ui/go.mod": "", "ui/a.go": "// Package\n// " + words(500) + "\npackage a\n"},
		},
		{
			rule: "persons in comments", where: "ui/...", worst: 5, what: "ui/a.go",
			breaks: map[string]string{
				"ui/go.mod": "", "ui/a.go": "package ui\n\n// Somebody asks nobody,\n// whoever he is.\n",
				"ui/a_test.go": "package ui //" + " himself\n",
			},
			keeps: inUI("// An operator asks the worker: they are not the same.\nconst text = `somebody`\n"),
		},
		{
			rule: "what as a subject, per 10,000", where: "all modules", worst: 50, what: "ui/a.go",
			breaks: inUI("// It locks what\n// is there. " + words(600-9) + "\n//\n// What changed? What follows?\n"),
			keeps:  inUI("// It locks what it finds. It shows what users see.\n\nconst text = `// what is`\n"),
		},
	}
}

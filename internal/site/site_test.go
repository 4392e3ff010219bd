package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const repository = "https://example.com/kagzi"

// Each page of docs is on the site, and each link leads to a page, to a picture or to the repository.
func TestSiteOfThisRepository(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := run("../..", dir, repository, false); err != nil {
		t.Fatal(err)
	}
	docs, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(docs) < 30 {
		t.Fatalf("%d pages of docs, %v", len(docs), err)
	}
	for _, name := range docs {
		if _, err := os.Stat(filepath.Join(dir, filepath.Base(name))); err != nil {
			t.Errorf("%s: list it in llms.txt: %v", name, err)
		}
	}
	pages, err := filepath.Glob(dir + "/*.md")
	if err != nil {
		t.Fatal(err)
	}
	local := regexp.MustCompile(`\]\((\./[^)#\s]+)`)
	n := 0
	for _, name := range pages {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range local.FindAllStringSubmatch(string(text), -1) {
			n++
			if _, err := os.Stat(filepath.Join(dir, filepath.FromSlash(m[1]))); err != nil {
				t.Errorf("%s: %v", filepath.Base(name), err)
			}
		}
	}
	if n < 300 {
		t.Errorf("%d links between pages, which must be too few", n)
	}
}

func TestLinksOfAPage(t *testing.T) {
	t.Parallel()
	root, dir := t.TempDir(), t.TempDir()
	for _, name := range []string{"pages/life.svg", "pages/a.md", "store/keys.go", "README.md"} {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s := &site{
		root: root, dir: dir, repository: repository,
		names: map[string]string{"pages/a.md": "a", "README.md": "index"},
	}
	for text, want := range map[string]string{
		"[a](a.md#b)":                     "[a](./a.md#b)",
		"[`a`](a.md), [r](../README.md)":  "[`a`](./a.md), [r](./index.md)",
		"[k](../store/keys.go)":           "[k](" + repository + "/blob/main/store/keys.go)",
		"[s](../store)":                   "[s](" + repository + "/tree/main/store)",
		"![life](life.svg)":               "![life](./pictures/pages-life.svg)",
		"[x](https://x.org/a.md) [y](#y)": "[x](https://x.org/a.md) [y](#y)",
		"```go\nm[a](b)\n```":             "```go\nm[a](b)\n```",
	} {
		if got, err := s.rewrite("pages/p.md", text); err != nil || got != want {
			t.Errorf("%q became %q, %v; want %q", text, got, err, want)
		}
	}
	if data, err := os.ReadFile(filepath.Join(dir, "pictures/pages-life.svg")); err != nil || string(data) != "x" {
		t.Errorf("the picture is %q, %v", data, err)
	}
	_, err := s.rewrite("pages/p.md", "[a](b.md)")
	if err == nil || !strings.Contains(err.Error(), "pages/p.md links to b.md") {
		t.Errorf("a link to a page that is not there: %v", err)
	}
}

func TestLinksThatLeadNowhere(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ body, want string }{
		"Page":         {`<a href="/b.html">`, "/b.html leads nowhere"},
		"Heading":      {`<a class="x" href="a.html#two">`, "a.html#two leads nowhere"},
		"OwnHeading":   {`<a href="#two">`, "#two leads nowhere"},
		"Picture":      {`<img alt="x" src="/p.svg">`, "/p.svg leads nowhere"},
		"Good":         {`<h2 id="one"><a href="#one"><a href="a.html#one"><a href="/a.html"><a href="./i.svg">`, ""},
		"OtherSite":    {`<a href="https://x.org/y#z"> <a href="#one" id="one">`, ""},
		"NothingAtAll": {``, "has no HTML with links"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for file, text := range map[string]string{"a.html": test.body, "i.svg": "x"} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			err := run(".", dir, "", true)
			if got := fmt.Sprint(err); (err == nil) != (test.want == "") || !strings.Contains(got, test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

// Command site makes a web site of the documentation: the same Markdown, with a list of all pages, a search, and links
// that lead to pages of the site, or to the repository. VitePress, which npm installs, turns it into HTML.
//
//	site DIR             README.md, llms.txt, docs/*.md ─► DIR/*.md, DIR/.vitepress
//	vitepress build DIR  DIR ─► HTML
//	site -check HTML     does each link lead somewhere?
//
// make site does all of it.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	check := flag.Bool("check", false, "check the links of the HTML in the folder")
	repository := flag.String("repository", "https://github.com/kagzi/kagzi", "where the source is")
	flag.Parse()
	if err := run(".", flag.Arg(0), *repository, *check); err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
}

func run(root, dir, repository string, check bool) error {
	switch {
	case dir == "":
		return fmt.Errorf("give a folder: go run ./internal/site .site")
	case check:
		return checkLinks(dir)
	}
	return write(root, dir, repository)
}

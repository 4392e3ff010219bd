package main

import (
	"errors"
	"fmt"
	"html"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

var (
	refs = regexp.MustCompile(`<a\s[^>]*?href="([^"]*)"|<img\s[^>]*?src="([^"]*)"`)
	ids  = regexp.MustCompile(`\sid="([^"]*)"`)
)

// checkLinks returns an error that names the links in the HTML under dir that lead to no page, heading or picture of
// it. It leaves out those to other sites.
func checkLinks(dir string) error {
	pages := map[string]string{}
	files := map[string]bool{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		files[rel] = true
		if path.Ext(rel) == ".html" {
			data, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			pages[rel] = string(data)
		}
		return nil
	})
	if err != nil {
		return err
	}
	checked := 0
	var lost []error
	for from, text := range pages {
		for _, m := range refs.FindAllStringSubmatch(text, -1) {
			to, err := url.Parse(html.UnescapeString(m[1] + m[2]))
			if err != nil {
				lost = append(lost, fmt.Errorf("%s: %w", from, err))
				continue
			}
			if to.Scheme != "" || to.Host != "" {
				continue
			}
			checked++
			if !leads(files, pages, from, to) {
				lost = append(lost, fmt.Errorf("%s: %s leads nowhere", from, to))
			}
		}
	}
	if checked == 0 {
		return fmt.Errorf("%s has no HTML with links", dir)
	}
	fmt.Printf("%d pages, %d links\n", len(pages), checked)
	return errors.Join(lost...)
}

// leads reports whether the page that a link leads to is there, and has the heading.
func leads(files map[string]bool, pages map[string]string, from string, to *url.URL) bool {
	name := from
	if to.Path != "" {
		name = strings.TrimPrefix(path.Join("/", path.Dir(from), to.Path), "/")
		if path.IsAbs(to.Path) {
			name = strings.TrimPrefix(path.Clean(to.Path), "/")
		}
		if name == "" || name == "." {
			name = "index.html"
		}
	}
	if to.Fragment == "" {
		return files[name]
	}
	for _, m := range ids.FindAllStringSubmatch(pages[name], -1) {
		if html.UnescapeString(m[1]) == to.Fragment {
			return true
		}
	}
	return false
}

package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

//go:embed config.mjs
var config []byte

// A page is a file of Markdown, and what it is called on the site.
type page struct{ file, name string }

// others are the pages that llms.txt does not list.
var others = []page{
	{"README.md", "index"},
	{"ui/README.md", "dashboard"},
	{"cmd/kagzi/README.md", "command-line"},
	{"otel/README.md", "otel"},
	{"bench/RESULTS.md", "results"},
	{"bench/PEERS.md", "peers"},
	{"CHANGELOG.md", "changelog"},
	{"CONTRIBUTING.md", "contributing"},
	{"SECURITY.md", "reporting"},
}

// A section is a part of the list of pages.
type section struct {
	Text  string `json:"text"`
	Items []item `json:"items"`
}

type item struct {
	Text string `json:"text"`
	Link string `json:"link"`
}

var (
	heading = regexp.MustCompile(`(?m)^## (.+)$`)
	listed  = regexp.MustCompile(`(?m)^- \[(.+?)\]\((.+?)\)`)
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
)

// sections returns the list of pages in llms.txt, with the modules behind it.
func sections(llms string) (all []section, pages []page) {
	starts := heading.FindAllStringSubmatchIndex(llms, -1)
	for i, at := range starts {
		end := len(llms)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		s := section{Text: llms[at[2]:at[3]]}
		for _, m := range listed.FindAllStringSubmatch(llms[at[1]:end], -1) {
			name := strings.TrimSuffix(path.Base(m[2]), ".md")
			text := m[1]
			if name == "SKILL" { // its heading is that of the README
				name, text = "skill", "A skill for coding agents"
			}
			pages = append(pages, page{m[2], name})
			s.Items = append(s.Items, item{text, "/" + name})
		}
		all = append(all, s)
	}
	all = append(all, section{"Modules", []item{
		{"Dashboard", "/dashboard"}, {"Command line", "/command-line"}, {"OpenTelemetry", "/otel"},
	}}, section{"Project", []item{
		{"Changelog", "/changelog"}, {"Benchmarks", "/results"}, {"Contributing", "/contributing"},
	}})
	return all, append(pages, others...)
}

// A site is what is to be written.
type site struct {
	root, dir, repository string
	names                 map[string]string // of the pages, by file
}

// write writes the Markdown of the site, its pictures, and the settings of VitePress.
func write(root, dir, repository string) error {
	llms, err := os.ReadFile(filepath.Join(root, "llms.txt"))
	if err != nil {
		return err
	}
	list, pages := sections(string(llms))
	s := &site{root: root, dir: dir, repository: repository, names: map[string]string{}}
	for _, p := range pages {
		s.names[p.file] = p.name
	}
	for _, p := range pages {
		text, err := os.ReadFile(filepath.Join(root, p.file))
		if err != nil {
			return err
		}
		out, err := s.rewrite(p.file, string(text))
		if err == nil {
			err = s.put(p.name+".md", []byte(out))
		}
		if err != nil {
			return err
		}
	}
	nav, err := json.MarshalIndent(list, "", "\t")
	if err != nil {
		return err
	}
	if err := s.put(".vitepress/list.json", nav); err != nil {
		return err
	}
	return s.put(".vitepress/config.mjs", config)
}

// put writes a file of the site.
func (s *site) put(name string, data []byte) error {
	name = filepath.Join(s.dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, data, 0o644)
}

// rewrite returns the text of a file with the links of the site.
func (s *site) rewrite(file, text string) (string, error) {
	var failed error
	code := false
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
		}
		if code {
			continue
		}
		lines[i] = link.ReplaceAllStringFunc(line, func(match string) string {
			to, err := s.target(file, match[2:len(match)-1])
			if err != nil {
				failed = err
			}
			return "](" + to + ")"
		})
	}
	return strings.Join(lines, "\n"), failed
}

// target returns where a link of a file leads on the site.
func (s *site) target(file, to string) (string, error) {
	if strings.Contains(to, ":") || strings.HasPrefix(to, "#") {
		return to, nil
	}
	to, fragment, found := strings.Cut(to, "#")
	if found {
		fragment = "#" + fragment
	}
	of := path.Join(path.Dir(file), to)
	if name, ok := s.names[of]; ok {
		return "./" + name + ".md" + fragment, nil
	}
	info, err := os.Stat(filepath.Join(s.root, filepath.FromSlash(of)))
	switch {
	case err != nil:
		return to, fmt.Errorf("%s links to %s: %w", file, to, err)
	case path.Ext(of) == ".svg" || path.Ext(of) == ".png":
		data, err := os.ReadFile(filepath.Join(s.root, filepath.FromSlash(of)))
		if err != nil {
			return to, err
		}
		name := "pictures/" + strings.ReplaceAll(of, "/", "-")
		return "./" + name, s.put(name, data)
	case info.IsDir():
		return s.repository + "/tree/main/" + of, nil
	}
	return s.repository + "/blob/main/" + of + fragment, nil
}

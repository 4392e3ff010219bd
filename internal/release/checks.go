package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kagzi/kagzi/migrations"
)

// A state is a repository before a release.
type state struct {
	dir      string
	version  string
	released []string // the versions below HEAD, the newest first
}

var versions = regexp.MustCompile(`^v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)$`)

// numbers returns the three numbers of a version.
func numbers(version string) (major, minor, patch int) {
	n := versions.FindStringSubmatch(version)
	major, _ = strconv.Atoi(n[1])
	minor, _ = strconv.Atoi(n[2])
	patch, _ = strconv.Atoi(n[3])
	return major, minor, patch
}

func newState(ctx context.Context, dir, version string) (*state, error) {
	if !versions.MatchString(version) {
		return nil, fmt.Errorf("%q is not a version like v0.1.0", version)
	}
	s := &state{dir: dir, version: version}
	tags, err := s.git(ctx, "tag", "--list", "v*", "--merged", "HEAD", "--sort=-version:refname")
	for tag := range strings.FieldsSeq(tags) {
		if versions.MatchString(tag) {
			s.released = append(s.released, tag)
		}
	}
	return s, err
}

func (s *state) git(ctx context.Context, args ...string) (string, error) {
	return run(ctx, s.dir, nil, append([]string{"git"}, args...)...)
}

// last returns the newest release; "" before the first one.
func (s *state) last() string {
	if len(s.released) == 0 {
		return ""
	}
	return s.released[0]
}

// A check returns what a release lacks. An error means that it could not find out.
type check struct {
	name string
	find func(*state, context.Context) (missing []string, err error)
}

// checks are in the order of the time that they take.
var checks = []check{
	{"version", (*state).checkVersion},
	{"clean tree", (*state).checkTree},
	{"changelog", (*state).checkChangelog},
	{"modules", (*state).checkModules},
	{"schema", (*state).checkSchema},
	{"vulnerabilities", (*state).checkVulnerabilities},
	{"API", (*state).checkAPI},
}

// check prints the result of each check. Its error says how many things are missing.
func (s *state) check(ctx context.Context, out io.Writer) error {
	n := 0
	for _, c := range checks {
		missing, err := c.find(s, ctx)
		if err != nil {
			missing = append(missing, err.Error())
		}
		if len(missing) == 0 {
			fmt.Fprintln(out, "ok      ", c.name)
		}
		for _, text := range missing {
			fmt.Fprintf(out, "MISSING  %s: %s\n", c.name, text)
		}
		n += len(missing)
	}
	if n > 0 {
		return fmt.Errorf("%s cannot be released: see the %d lines with MISSING", s.version, n)
	}
	return nil
}

func (s *state) checkVersion(ctx context.Context) (missing []string, err error) {
	tags, err := s.git(ctx, "tag", "--list")
	if err != nil {
		return nil, err
	}
	for _, folder := range public {
		if tag := tagOf(folder, s.version); slices.Contains(strings.Fields(tags), tag) {
			missing = append(missing, "a new version: the tag "+tag+" exists")
		}
	}
	if last := s.last(); last != "" && !newer(s.version, last) {
		missing = append(missing, "a version after "+last)
	}
	return missing, nil
}

// newer reports whether version a comes after version b.
func newer(a, b string) bool {
	var x, y [3]int
	x[0], x[1], x[2] = numbers(a)
	y[0], y[1], y[2] = numbers(b)
	return slices.Compare(x[:], y[:]) > 0
}

func (s *state) checkTree(ctx context.Context) (missing []string, err error) {
	changed, err := s.git(ctx, "status", "--porcelain")
	if changed != "" {
		missing = append(missing, "a commit of these files:\n"+changed)
	}
	return missing, err
}

func (s *state) checkChangelog(context.Context) (missing []string, err error) {
	text, err := os.ReadFile(filepath.Join(s.dir, "CHANGELOG.md"))
	if err != nil {
		return nil, err
	}
	return changelog(string(text), s.version, migrations.Version()), nil
}

// changelog returns what a changelog lacks for the release of a version.
func changelog(text, version string, schema int64) (missing []string) {
	heading := fmt.Sprintf("## [%s] - ", strings.TrimPrefix(version, "v"))
	dated := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(heading) + `\d{4}-\d\d-\d\d\n`)
	at := dated.FindStringIndex(text)
	if at == nil {
		return []string{"in CHANGELOG.md a section that begins with " + heading + "YYYY-MM-DD"}
	}
	if !strings.Contains(text[:at[0]], "## [Unreleased]\n") {
		missing = append(missing, "in CHANGELOG.md a section ## [Unreleased] above that of the release")
	}
	section, _, _ := strings.Cut(text[at[1]:], "\n## ")
	section = strings.Join(strings.Fields(section), " ")
	if want := fmt.Sprintf("schema version %d", schema); !strings.Contains(section, want) {
		missing = append(missing, fmt.Sprintf("in CHANGELOG.md, below %q: %q", heading, want))
	}
	return missing
}

// checkModules looks at all go.mod files: what pin makes of them must be complete.
func (s *state) checkModules(ctx context.Context) (missing []string, err error) {
	folders, err := findModules(ctx, s.dir)
	if err != nil {
		return nil, err
	}
	for _, folder := range folders {
		if !slices.Contains(public, folder) && !slices.Contains(internal, folder) {
			missing = append(missing, "in internal/release/modules.go: whether the module in "+folder+" is public")
		}
	}
	floor := ""
	for _, folder := range public {
		mod, err := readGoMod(ctx, filepath.Join(s.dir, folder))
		if err != nil {
			return nil, err
		}
		if floor == "" {
			floor = mod.Go
		}
		if mod.Go != floor {
			missing = append(missing, fmt.Sprintf("%s/go.mod: go %s, as in the root module", folder, floor))
		}
		missing = append(missing, mod.strays(folder)...)
	}
	return missing, nil
}

// strays returns what keeps a public module from being required by others.
func (m goMod) strays(folder string) (missing []string) {
	for _, r := range m.Replace {
		if !isOurs(r.Old.Path) {
			missing = append(missing, fmt.Sprintf("%s/go.mod: no replace line of %s", folder, r.Old.Path))
		}
	}
	for _, module := range m.ours() {
		at := slices.IndexFunc(public, func(folder string) bool { return modulePath(folder) == module })
		if at < 0 || at >= slices.Index(public, folder) {
			missing = append(missing, fmt.Sprintf("%s/go.mod: %s before it in the order of releases", folder, module))
		}
	}
	return missing
}

// checkSchema compares the migrations with those of the last release, which are applied to databases of users.
func (s *state) checkSchema(ctx context.Context) (missing []string, err error) {
	if s.last() == "" {
		return nil, nil
	}
	changed, err := s.git(ctx, "diff", "--name-only", "--no-renames", "--diff-filter=a", s.last(), "HEAD", "--",
		"migrations/*.sql", ":!migrations/roles")
	for name := range strings.FieldsSeq(changed) {
		missing = append(missing, fmt.Sprintf("%s as in %s: add a migration, and change none", name, s.last()))
	}
	return missing, err
}

// checkVulnerabilities fails if the vulnerabilities cannot be looked up, too.
func (s *state) checkVulnerabilities(ctx context.Context) ([]string, error) {
	_, err := run(ctx, s.dir, []string{"UNCHECKED=1"}, "make", "vulncheck")
	return nil, err
}

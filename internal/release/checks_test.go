package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestChangelog(t *testing.T) {
	t.Parallel()
	const complete = "# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2026-12-01\n\nIt has schema\nversion 3.\n\n" +
		"## [0.1.0] - 2026-11-01\n\nIt has schema version 1.\n"
	for name, c := range map[string]struct {
		old, now string // the edit
		version  string
		want     string // a part of the only thing that is missing
	}{
		"complete":         {version: "v0.2.0"},
		"no section":       {version: "v0.3.0", want: "begins with ## [0.3.0] - YYYY-MM-DD"},
		"another section":  {version: "v0.1.0", want: `below "## [0.1.0] - ": "schema version 3"`},
		"no date":          {old: "2026-12-01", now: "soon", version: "v0.2.0", want: "begins with ## [0.2.0] - YYYY"},
		"no schema":        {old: "version 3", now: "version 2", version: "v0.2.0", want: `"schema version 3"`},
		"no next section":  {old: "## [Unreleased]\n", version: "v0.2.0", want: "## [Unreleased] above"},
		"dots are no dots": {version: "v0x2x0", want: "begins with ## [0x2x0]"},
	} {
		missing := strings.Join(changelog(strings.Replace(complete, c.old, c.now, 1), c.version, 3), "\n")
		if c.want == "" && missing != "" || !strings.Contains(missing, c.want) || strings.Contains(missing, "\n") {
			t.Errorf("%s: %q, want %q", name, missing, c.want)
		}
	}
}

func TestVersions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		before, after   string
		newer, mayBreak bool
	}{
		{"v0.1.0", "v0.1.1", true, false},
		{"v0.1.9", "v0.1.10", true, false},
		{"v0.9.0", "v0.10.0", true, true},
		{"v0.2.0", "v0.1.9", false, false},
		{"v0.1.0", "v0.1.0", false, false},
		{"v0.9.0", "v1.0.0", true, true},
		{"v1.9.0", "v1.10.0", true, false},
		{"v1.9.0", "v2.0.0", true, true},
	} {
		if got := newer(c.after, c.before); got != c.newer {
			t.Errorf("newer(%s, %s) is %t", c.after, c.before, got)
		}
		if got := mayBreak(c.before, c.after); got != c.mayBreak {
			t.Errorf("mayBreak(%s, %s) is %t", c.before, c.after, got)
		}
	}
}

// A repository of two commits, of which the first is v0.1.0: each check finds what a release of the second lacks.
func TestChecksFindWhatIsMissing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := &state{dir: dir, version: "v0.1.1"}
	git := func(args ...string) {
		t.Helper()
		if _, err := s.git(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
	}
	files := func(api string) {
		t.Helper()
		for name, text := range map[string]string{
			"go.mod": "module github.com/kagzi/kagzi\n\ngo 1.26.0\n", "kagzi.go": "package kagzi\n\n" + api,
			"migrations/00001_initial.sql": "-- " + api, "migrations/roles/roles.sql": "-- " + api,
			"migrations/" + strings.Fields(api)[1] + ".sql": "-- each commit has another file\n",
		} {
			file := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		git("add", "--all")
	}
	git("init", "--quiet")
	files("func Started() {}\n")
	git("commit", "--quiet", "-m", "first")
	git("tag", "v0.1.0")
	files("func Begun() {}\n")
	s, err := newState(t.Context(), dir, "v0.1.1")
	if err != nil {
		t.Fatal(err)
	}
	wantMissing(t, s, (*state).checkTree, "kagzi.go")
	git("commit", "--quiet", "-m", "second")
	wantMissing(t, s, (*state).checkTree)
	wantMissing(t, s, (*state).checkSchema, "migrations/00001_initial.sql as in v0.1.0")
	wantMissing(t, s, (*state).checkAPI, "github.com/kagzi/kagzi", "Started: removed")
	wantMissing(t, s, (*state).checkVersion)
	s.version = "v0.2.0"
	wantMissing(t, s, (*state).checkAPI)
	s.version = "v0.1.0"
	if missing, err := s.checkVersion(t.Context()); err != nil || len(missing) != 2 {
		t.Errorf("v0.1.0 again: %q, %v, want that the tag exists and that the version is not newer", missing, err)
	}
}

// wantMissing fails the test unless a check finds one thing missing, with these parts; nothing without parts.
func wantMissing(
	t *testing.T, s *state, find func(*state, context.Context) ([]string, error), parts ...string,
) {
	t.Helper()
	missing, err := find(s, t.Context())
	if err != nil || len(missing) != min(1, len(parts)) {
		t.Errorf("missing are %q, %v, want %q", missing, err, parts)
	}
	for _, part := range parts {
		if !strings.Contains(strings.Join(missing, "\n"), part) {
			t.Errorf("missing are %q, want %q", missing, part)
		}
	}
}

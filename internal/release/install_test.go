package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi/internal/dbtest"
)

func TestMain(m *testing.M) {
	for key, value := range map[string]string{"NAME": "Tester", "EMAIL": "tester@example.invalid"} {
		_ = os.Setenv("GIT_AUTHOR_"+key, value) // a machine of CI has no name
		_ = os.Setenv("GIT_COMMITTER_"+key, value)
	}
	dbtest.Main(m)
}

const repo = "../.."

// repository returns a repository and a commit of the work tree in it, without the files that git does not know. A
// folder that is no repository, such as an unpacked archive, is copied to a new one.
func repository(t *testing.T) (dir, commit string) {
	t.Helper()
	git := func(args ...string) string {
		t.Helper()
		out, err := run(t.Context(), dir, nil, append([]string{"git"}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	dir = repo
	if _, err := os.Stat(filepath.Join(repo, ".git")); err != nil {
		dir = t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(repo)); err != nil {
			t.Fatal(err)
		}
		git("init", "-q")
		git("add", "-A")
		git("-c", "user.name=test", "-c", "user.email=test@localhost", "commit", "-q", "-m", "test")
	} else if commit = git("stash", "create"); commit != "" {
		return dir, commit
	}
	return dir, git("rev-parse", "HEAD")
}

// The release of this work tree is fetched, installed in an empty folder, and runs the program of the README.
func TestReleaseInstalls(t *testing.T) {
	t.Parallel()
	const version = "v0.1.0"
	db := dbtest.Database(t, dbtest.Empty())
	dir, commit := repository(t)
	c, err := newCandidate(t.Context(), dir, commit, version, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	program, err := firstProgram(repo)
	if err != nil {
		t.Fatal(err)
	}
	for old, now := range map[string]string{
		`"postgres://postgres:secret@localhost:5432/postgres?pool_max_conns=10"`: "`" + db.DSN + "`",
		"20*time.Second": "time.Millisecond",
	} {
		if strings.Count(program, old) != 1 {
			t.Fatalf("the README's program does not have %q once", old)
		}
		program = strings.Replace(program, old, now, 1)
	}
	if err := c.install(t.Context(), program); err != nil {
		t.Fatal(err)
	}
	wantHello(t, c)
	wantModules(t, c)
	wantCommits(t, c)
}

// wantHello fails the test unless the program of the README executes its run.
func wantHello(t *testing.T, c *candidate) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var logged bytes.Buffer
	hello := exec.CommandContext(ctx, filepath.Join(c.bin(), "hello"))
	hello.Stderr = &logged
	out, err := hello.Output()
	want := "creating an account for ada\nsigned up: account-of-ada\n"
	if err != nil || string(out) != want {
		t.Errorf("the installed program: %v, and said\n%swant\n%slog:\n%s", err, out, want, &logged)
	}
}

// wantModules fails the test unless the modules of the release commit have the versions and sums that they need.
func wantModules(t *testing.T, c *candidate) {
	t.Helper()
	env, err := c.installEnv(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range public {
		dir := filepath.Join(c.clone, folder)
		if _, err := run(t.Context(), dir, env, "go", "mod", "tidy", "-diff"); err != nil {
			t.Errorf("the module in %s: %v", folder, err)
		}
	}
	for _, folder := range internal {
		if _, err := run(t.Context(), filepath.Join(c.clone, folder), env, "go", "list", "-deps", "./..."); err != nil {
			t.Errorf("the module in %s: %v", folder, err)
		}
	}
}

// wantCommits fails the test unless the tags are at a commit whose child has the files of its parent.
func wantCommits(t *testing.T, c *candidate) {
	t.Helper()
	git := func(args ...string) string {
		out, err := c.git(t.Context(), args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for _, folder := range public {
		if commit := git("rev-parse", tagOf(folder, c.version)+"^{commit}"); commit != c.commit {
			t.Errorf("tag %s is at %s, want %s", tagOf(folder, c.version), commit, c.commit)
		}
	}
	if diff := git("diff", "--name-only", c.commit+"~", c.after); diff != "" {
		t.Errorf("after the release, these files differ from those before it: %s", diff)
	}
	for name := range strings.FieldsSeq(git("diff", "--name-only", c.commit+"~", c.commit)) {
		if base := filepath.Base(name); base != "go.mod" && base != "go.sum" {
			t.Errorf("the release commit changes %s", name)
		}
	}
}

// A new module is public or internal.
func TestEveryModuleIsPublicOrInternal(t *testing.T) {
	t.Parallel()
	folders, err := findModules(t.Context(), repo)
	if err != nil {
		t.Fatal(err)
	}
	want := slices.Sorted(slices.Values(slices.Concat(public, internal)))
	if slices.Sort(folders); !slices.Equal(folders, want) {
		t.Errorf("the repository has the modules %v, and the release knows %v", folders, want)
	}
}

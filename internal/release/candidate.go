package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A candidate is a release that can be installed from this machine, and is not tagged in the repository yet.
type candidate struct {
	version string
	dir     string // has all that follows
	clone   string // the repository, with the release commit and its tags
	cache   string // the module cache of the go command that fetched our modules from the clone
	commit  string // the release commit
	after   string // its child, with the files of its parent
	sums    []string
}

// newCandidate commits and tags a release of the commit base, in a clone of the repository below dir. It fetches each
// public module from there.
func newCandidate(ctx context.Context, repo, base, version, dir string) (*candidate, error) {
	c := &candidate{
		version: version, dir: dir, clone: filepath.Join(dir, "clone"), cache: filepath.Join(dir, "ours"),
	}
	if _, err := run(ctx, repo, nil, "git", "clone", "--quiet", "--shared", "--no-checkout", ".", c.clone); err != nil {
		return nil, err
	}
	for _, key := range []string{"user.name", "user.email"} {
		if value, err := run(ctx, repo, nil, "git", "config", key); err == nil {
			if _, err := c.git(ctx, "config", key, value); err != nil {
				return nil, err
			}
		}
	}
	if _, err := c.git(ctx, "checkout", "--quiet", "--detach", base); err != nil {
		return nil, err
	}
	if err := c.commitRelease(ctx); err != nil {
		return nil, err
	}
	return c, c.commitDevelopment(ctx, base)
}

func (c *candidate) git(ctx context.Context, args ...string) (string, error) {
	return run(ctx, c.clone, nil, append([]string{"git"}, args...)...)
}

// commitRelease edits the modules and fetches the public ones, each from a commit of its own: a module's sum belongs
// into the next one's go.sum. Afterwards it folds the commits into one, with all tags.
func (c *candidate) commitRelease(ctx context.Context) error {
	for _, folder := range slices.Concat(public, internal) {
		if err := c.pin(ctx, folder); err != nil {
			return err
		}
		if slices.Contains(public, folder) {
			if err := c.fetch(ctx, folder); err != nil {
				return err
			}
		}
	}
	if _, err := c.git(ctx, "commit", "--quiet", "--amend", "--all", "-m", "Release "+c.version); err != nil {
		return err
	}
	for _, folder := range public {
		if _, err := c.git(ctx, "tag", "--force", tagOf(folder, c.version)); err != nil {
			return err
		}
	}
	commit, err := c.git(ctx, "rev-parse", "HEAD")
	c.commit = commit
	return err
}

// pin requires the release of our modules in the module of a folder. A public one loses its replace lines.
func (c *candidate) pin(ctx context.Context, folder string) error {
	dir := filepath.Join(c.clone, folder)
	mod, err := readGoMod(ctx, dir)
	if err != nil {
		return err
	}
	edit := []string{"go", "mod", "edit"}
	for _, module := range mod.ours() {
		edit = append(edit, "-require="+module+"@"+c.version)
	}
	if !slices.Contains(public, folder) {
		_, err := run(ctx, dir, nil, edit...)
		return err
	}
	for _, r := range mod.Replace {
		edit = append(edit, "-dropreplace="+r.Old.Path)
	}
	if len(edit) == 3 {
		return nil
	}
	if _, err := run(ctx, dir, nil, edit...); err != nil {
		return err
	}
	return addSums(filepath.Join(dir, "go.sum"), c.sumsOf(mod.ours()))
}

// sumsOf returns the lines of go.sum for modules that were fetched.
func (c *candidate) sumsOf(modules []string) (lines []string) {
	for _, line := range c.sums {
		if slices.Contains(modules, moduleOf(line)) {
			lines = append(lines, line)
		}
	}
	return lines
}

// addSums adds the lines of a module to a go.sum file, which is sorted by module.
func addSums(file string, sums []string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	lines := strings.Split(string(text), "\n")
	for _, sum := range sums {
		at := slices.IndexFunc(lines, func(line string) bool {
			return line == "" || moduleOf(line) > moduleOf(sum)
		})
		lines = slices.Insert(lines, at, sum)
	}
	return os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o644)
}

// moduleOf returns the module of a line of go.sum.
func moduleOf(line string) string {
	module, _, _ := strings.Cut(line, " ")
	return module
}

// fetch commits and tags the module of a folder, and lets the go command fetch it.
func (c *candidate) fetch(ctx context.Context, folder string) error {
	commit := []string{"commit", "--quiet", "--allow-empty", "--all", "-m", "Release " + c.version}
	if folder != public[0] {
		commit = append(commit, "--amend")
	}
	if _, err := c.git(ctx, commit...); err != nil {
		return err
	}
	if _, err := c.git(ctx, "tag", tagOf(folder, c.version)); err != nil {
		return err
	}
	module := modulePath(folder)
	out, err := run(ctx, c.dir, c.fetchEnv(), "go", "mod", "download", "-json", module+"@"+c.version)
	if err != nil {
		return err
	}
	var fetched struct{ Sum, GoModSum string }
	if err := json.Unmarshal([]byte(out), &fetched); err != nil {
		return fmt.Errorf("go mod download -json %s: %w", module, err)
	}
	c.sums = append(c.sums, fmt.Sprintf("%s %s %s", module, c.version, fetched.Sum),
		fmt.Sprintf("%s %s/go.mod %s", module, c.version, fetched.GoModSum))
	return nil
}

// fetchEnv makes the go command fetch modules by git, and git fetch the repository from the clone.
func (c *candidate) fetchEnv() []string {
	return []string{
		"GOMODCACHE=" + c.cache, "GOPROXY=direct", "GOSUMDB=off", "GOWORK=off", "GOFLAGS=-modcacherw",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url." + c.clone + ".insteadOf", "GIT_CONFIG_VALUE_0=https://" + root,
	}
}

// commitDevelopment adds the commit that undoes the release commit. So the tags are below main, and versions of later
// commits are greater.
func (c *candidate) commitDevelopment(ctx context.Context, base string) (err error) {
	c.after, err = c.git(ctx, "commit-tree", base+"^{tree}", "-p", c.commit, "-m", "Development after "+c.version)
	if err != nil {
		return err
	}
	_, err = c.git(ctx, "branch", "after", c.after)
	return err
}

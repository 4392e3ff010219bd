package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
)

const apidiff = "golang.org/x/exp/cmd/apidiff@v0.0.0-20261113113407-e3970619a1a4"

// checkAPI compares the API of each public module with that of the last release. Until v1 a new minor version may break
// it, and afterwards only a new major version.
func (s *state) checkAPI(ctx context.Context) (missing []string, err error) {
	if s.last() == "" {
		return nil, nil
	}
	temp, err := os.MkdirTemp("", "kagzi-api-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temp)
	before := filepath.Join(temp, "before")
	if _, err := s.git(ctx, "clone", "--quiet", "--shared", "--branch", s.last(), ".", before); err != nil {
		return nil, err
	}
	for _, folder := range public {
		if _, err := os.Stat(filepath.Join(before, folder, "go.mod")); err != nil {
			continue // the module is new
		}
		old, now := filepath.Join(before, folder), filepath.Join(s.dir, folder)
		broken, err := breaks(ctx, modulePath(folder), old, now, temp)
		if err != nil {
			return nil, err
		}
		if broken != "" && !mayBreak(s.last(), s.version) {
			missing = append(missing, "a version that may break the API of "+modulePath(folder)+":\n"+broken)
		}
	}
	return missing, nil
}

// mayBreak reports whether a version may break the API of one before it.
func mayBreak(before, after string) bool {
	major, minor, _ := numbers(before)
	nextMajor, nextMinor, _ := numbers(after)
	return nextMajor > major || major == 0 && nextMinor > minor
}

// breaks returns what of a module's exported API is no longer as it was; "" if all is. temp is an empty folder.
func breaks(ctx context.Context, module, before, after, temp string) (string, error) {
	old, now := filepath.Join(temp, "before.api"), filepath.Join(temp, "after.api")
	for file, dir := range map[string]string{old: before, now: after} {
		if _, err := run(ctx, dir, nil, "go", "run", apidiff, "-m", "-w", file, module); err != nil {
			return "", err
		}
	}
	text, err := run(ctx, temp, nil, "go", "run", apidiff, "-m", "-incompatible", old, now)
	return strings.TrimSpace(text), err
}

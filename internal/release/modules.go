package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// root is the path of the root module. The path of each other module is the path of its folder below it.
const root = "github.com/kagzi/kagzi"

// public are the folders of the modules that are released. A module comes after those that it requires.
var public = []string{".", "ui", "otel", "cmd/kagzi"}

// internal are the folders of the modules that no user installs and that require one of ours. They keep their replace
// lines.
var internal = []string{
	"bench", "chaos", "examples/quickstart", "examples/shop", "otel/test/scrape", "test/model",
	"ui/test",
}

// modulePath returns the path of the module in a folder of the repository.
func modulePath(folder string) string { return path.Join(root, folder) }

// tagOf returns the tag of a version of the module in a folder.
func tagOf(folder, version string) string { return path.Join(folder, version) }

// A goMod is what go mod edit -json prints of a go.mod file.
type goMod struct {
	Go      string
	Require []goRequire
	Replace []struct {
		Old goRequire
		New goRequire
	}
}

type goRequire struct{ Path, Version string }

// readGoMod reads the go.mod file of a folder on disk.
func readGoMod(ctx context.Context, dir string) (mod goMod, err error) {
	out, err := run(ctx, dir, nil, "go", "mod", "edit", "-json")
	if err != nil {
		return mod, err
	}
	return mod, json.Unmarshal([]byte(out), &mod)
}

// isOurs reports whether a module is one of the repository.
func isOurs(modulePath string) bool {
	return modulePath == root || strings.HasPrefix(modulePath, root+"/")
}

// ours returns the required modules of the repository.
func (m goMod) ours() (paths []string) {
	for _, r := range m.Require {
		if isOurs(r.Path) {
			paths = append(paths, r.Path)
		}
	}
	return paths
}

// findModules returns the folders of the modules of a repository on disk, but for those that require none of ours: a
// release changes nothing in them.
func findModules(ctx context.Context, dir string) (folders []string, err error) {
	out, err := run(ctx, dir, nil, "git", "ls-files", "go.mod", "*/go.mod")
	if err != nil {
		return nil, err
	}
	for name := range strings.FieldsSeq(out) {
		folder := path.Dir(name)
		if strings.Contains(name, "testdata/") {
			continue
		}
		mod, err := readGoMod(ctx, filepath.Join(dir, folder))
		if err != nil {
			return nil, err
		}
		if folder == "." || len(mod.ours()) > 0 {
			folders = append(folders, folder)
		}
	}
	return folders, nil
}

var readmeProgram = regexp.MustCompile("(?s)```go\n(package main\n.*?)```")

// firstProgram returns the program of the README, with which newcomers begin.
func firstProgram(dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		return "", err
	}
	found := readmeProgram.FindSubmatch(text)
	if found == nil {
		return "", fmt.Errorf("README.md has no Go block that begins with package main")
	}
	return string(found[1]), nil
}

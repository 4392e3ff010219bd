package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// installEnv makes the go command take our modules from the candidate. Those of others come from the module cache of
// this machine or, if it lacks them, from the usual proxy. -trimpath lets builds in other folders share their results.
func (c *candidate) installEnv(ctx context.Context) ([]string, error) {
	out, err := run(ctx, c.dir, nil, "go", "env", "GOMODCACHE", "GOPROXY")
	if err != nil {
		return nil, err
	}
	cache, proxy, _ := strings.Cut(out, "\n")
	files := func(cache string) string { return "file://" + filepath.ToSlash(cache) + "/cache/download" }
	return []string{
		"GOPROXY=" + files(c.cache) + "," + files(cache) + "," + proxy, "GOSUMDB=off", "GOWORK=off",
		"GOMODCACHE=" + filepath.Join(c.dir, "modules"), "GOBIN=" + c.bin(), "GOFLAGS=-modcacherw -trimpath",
	}, nil
}

// bin is the folder of the programs that install builds.
func (c *candidate) bin() string { return filepath.Join(c.dir, "bin") }

// install does in an empty folder what the READMEs tell newcomers to do: it gets each module, builds a program, and
// installs the command line. Then it asks the command line for its version. The program is bin/hello.
func (c *candidate) install(ctx context.Context, program string) error {
	env, err := c.installEnv(ctx)
	if err != nil {
		return err
	}
	dir := filepath.Join(c.dir, "hello")
	imports := "package main\n\nimport (\n"
	steps := [][]string{{"go", "mod", "init", "hello"}}
	for _, folder := range public {
		module := modulePath(folder)
		if strings.HasPrefix(folder, "cmd/") {
			steps = append(steps, []string{"go", "install", module + "@" + c.version})
			continue
		}
		steps = append(steps, []string{"go", "get", module + "@" + c.version})
		imports += fmt.Sprintf("\t_ %q\n", module)
	}
	for _, step := range []string{"mod tidy", "mod verify", "install ."} {
		steps = append(steps, append([]string{"go"}, strings.Fields(step)...))
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, text := range map[string]string{"main.go": program, "imports.go": imports + ")\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	for _, step := range steps {
		if _, err := run(ctx, dir, env, step...); err != nil {
			return err
		}
	}
	return c.askVersion(ctx)
}

// askVersion fails unless the installed command line says the version of the release.
func (c *candidate) askVersion(ctx context.Context) error {
	said, err := run(ctx, c.dir, nil, filepath.Join(c.bin(), "kagzi"), "version")
	if err != nil {
		return err
	}
	if want := "kagzi " + c.version + ", schema "; !strings.HasPrefix(said, want) {
		return fmt.Errorf("kagzi version says %q, which does not begin with %q", said, want)
	}
	return nil
}

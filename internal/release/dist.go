package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const cyclonedx = "github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0"

// writeDist writes a bill of materials of each module, the sums of the modules, and the checksums of these files.
func (c *candidate) writeDist(ctx context.Context, dist string) error {
	if err := os.MkdirAll(dist, 0o755); err != nil {
		return err
	}
	if _, err := run(ctx, c.dir, []string{"GOBIN=" + c.bin(), "GOWORK=off"}, "go", "install", cyclonedx); err != nil {
		return err
	}
	env, err := c.installEnv(ctx)
	if err != nil {
		return err
	}
	files := []string{"go.sum"}
	for _, folder := range public {
		name := strings.ReplaceAll(folder, "/", "-") + ".cdx.json"
		if folder == "." {
			name = "kagzi.cdx.json"
		}
		files = append(files, name)
		if err := c.writeBill(ctx, env, folder, filepath.Join(dist, name)); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(dist, "go.sum"), []byte(strings.Join(c.sums, "\n")+"\n"), 0o644); err != nil {
		return err
	}
	return writeChecksums(dist, files)
}

// writeBill writes the bill of materials of a module. The tool finds the version in the tags of the clone.
func (c *candidate) writeBill(ctx context.Context, env []string, folder, file string) error {
	kind := "library"
	if strings.HasPrefix(folder, "cmd/") {
		kind = "application"
	}
	tool := []string{filepath.Join(c.bin(), "cyclonedx-gomod"), "mod", "-json", "-licenses", "-noserial"}
	tool = append(tool, "-type", kind, "-output", file, ".")
	if _, err := run(ctx, filepath.Join(c.clone, folder), env, tool...); err != nil {
		return err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	want := fmt.Sprintf(`"pkg:golang/%s@%s?type=module"`, modulePath(folder), c.version)
	if !strings.Contains(string(text), want) {
		return fmt.Errorf("the bill of materials of %s does not have %s", modulePath(folder), want)
	}
	return nil
}

// writeChecksums writes SHA256SUMS, which sha256sum -c reads.
func writeChecksums(dist string, files []string) error {
	slices.Sort(files)
	var lines strings.Builder
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join(dist, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&lines, "%x  %s\n", sha256.Sum256(text), name)
	}
	return os.WriteFile(filepath.Join(dist, "SHA256SUMS"), []byte(lines.String()), 0o644)
}

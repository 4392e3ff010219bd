package localpg

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// initdbArguments are those that decide what a fresh data directory holds. Local connections need no
// password, because nobody else can reach the socket; anybody on this machine can reach the port.
var initdbArguments = []string{
	"--username=postgres", "--auth-local=trust", "--auth-host=scram-sha-256",
	"--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions",
}

// initialize fills the cluster's data directory and returns the superuser's password. The first time it runs
// initdb, which takes a second, and keeps a copy; after that it copies the copy.
func (c *Cluster) initialize(ctx context.Context, version string) (password string, err error) {
	template := c.templatePath(version)
	if template != "" && ownedByUs(template) {
		if password, err := c.copyTemplate(template); err == nil {
			return password, nil
		}
		// Somebody is cleaning up the cache, or the disk is at fault: a fresh one is made in place.
		if err := os.RemoveAll(c.dir.data()); err != nil {
			return "", err
		}
	}
	password = rand.Text()
	if err := c.initdb(ctx, password); err != nil {
		return "", err
	}
	if template != "" {
		_ = c.saveTemplate(template, password) // a cache that cannot be written costs time only
	}
	return password, nil
}

// initdb makes a fresh data directory.
func (c *Cluster) initdb(ctx context.Context, password string) error {
	file := filepath.Join(c.dir.socket(), "password")
	if err := os.WriteFile(file, []byte(scramSecret(password)), 0o600); err != nil {
		return err
	}
	defer os.Remove(file)
	if err := c.dir.give(file); err != nil {
		return err
	}
	args := append([]string{"--pgdata=" + c.dir.data(), "--pwfile=" + file}, initdbArguments...)
	offset := c.dir.logSize()
	p, err := startProcess(filepath.Join(c.bin, "initdb"), args, c.dir)
	if err != nil {
		return fmt.Errorf("start initdb: %w", err)
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		p.end(shutdownImmediate)
		return fmt.Errorf("waiting for initdb: %w", context.Cause(ctx))
	}
	if p.err != nil {
		return fmt.Errorf("initdb: %w\n%s", p.err, c.dir.logFrom(offset))
	}
	return nil
}

// templatePath returns where the template for this Postgres is or would be kept, or "" if there is no safe
// place. What decides the template's contents is in its name.
func (c *Cluster) templatePath(version string) string {
	base := cacheDir()
	if base == "" {
		return ""
	}
	h := sha256.New()
	fmt.Fprintln(h, version, c.bin, initdbArguments, "hashed once")
	if info, err := os.Stat(filepath.Join(c.bin, "postgres")); err == nil {
		fmt.Fprintln(h, info.Size(), info.ModTime().UnixNano())
	}
	return filepath.Join(base, "template-"+hex.EncodeToString(h.Sum(nil))[:16])
}

// cacheDir returns a directory that only this user can write to, made if need be, or "".
func cacheDir() string {
	bases := []string{filepath.Join(os.TempDir(), fmt.Sprintf("kagzi-cache-%d", os.Getuid()))}
	if user, err := os.UserCacheDir(); err == nil {
		bases = append([]string{filepath.Join(user, "kagzi")}, bases...)
	}
	for _, base := range bases {
		dir := filepath.Join(base, "localpg")
		for _, d := range []string{base, dir} {
			_ = os.MkdirAll(filepath.Dir(d), 0o755)
			_ = os.Mkdir(d, 0o700) // not MkdirAll: it would accept a directory, or a link, that somebody else put there
		}
		if ownedByUs(base) && ownedByUs(dir) {
			return dir
		}
	}
	return ""
}

// templateLife is how long a template is kept after its last use.
const templateLife = 60 * 24 * time.Hour

// pruneTemplates removes those of Postgres versions that are no longer used, and what processes that died left.
func pruneTemplates(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil && time.Since(info.ModTime()) > templateLife {
			_ = os.RemoveAll(filepath.Join(dir, entry.Name()))
		}
	}
}

// saveTemplate keeps a copy of the data directory. Of several processes that do so at once the first wins.
func (c *Cluster) saveTemplate(template, password string) error {
	pruneTemplates(filepath.Dir(template))
	tmp, err := os.MkdirTemp(filepath.Dir(template), "new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if err := copyTree(filepath.Join(tmp, "data"), c.dir.data(), func(string) error { return nil }); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(tmp, "password"), []byte(password), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, template) // fails if the template exists: a directory replaces only an empty one
}

// copyTemplate fills the data directory from the template.
func (c *Cluster) copyTemplate(template string) (password string, err error) {
	b, err := os.ReadFile(filepath.Join(template, "password"))
	if err != nil {
		return "", err
	}
	if err := copyTree(c.dir.data(), filepath.Join(template, "data"), c.dir.give); err != nil {
		return "", err
	}
	_ = os.Chtimes(template, time.Time{}, time.Now()) // used: not to be pruned
	return string(b), nil
}

// copyTree copies the directory src to dst, which must not exist, and calls made with each path it has made.
func copyTree(dst, src string, made func(path string) error) error {
	return filepath.WalkDir(src, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(src, path)
		if err != nil {
			return err
		}
		target := filepath.Join(dst, relative)
		switch {
		case entry.IsDir():
			err = os.Mkdir(target, 0o700)
		case entry.Type().IsRegular():
			err = copyFile(target, path)
		default:
			err = fmt.Errorf("%s is neither file nor directory", path)
		}
		if err != nil {
			return err
		}
		return made(target)
	})
}

// copyFile copies a file, in the kernel where the system can.
func copyFile(dst, src string) (err error) {
	in, err := os.Open(src)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(dst, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, in)
	return err
}

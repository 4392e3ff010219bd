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

// initdbArguments are the arguments that decide the contents of a new data directory. Connections over the socket need
// no password, because other users cannot reach the socket. Every user of this machine can reach the port.
var initdbArguments = []string{
	"--username=postgres", "--auth-local=trust", "--auth-host=scram-sha-256",
	"--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions",
}

// initialize fills the data directory of a server and returns the superuser's password. The first time it runs initdb,
// which takes a second, and keeps the result as a template; later calls copy the template.
func initialize(ctx context.Context, bin, version string, dir *directory) (password string, err error) {
	template := templatePath(bin, version)
	if template != "" && ownedByUs(template) {
		if password, err := copyTemplate(dir, template); err == nil {
			return password, nil
		}
		// Another process is cleaning up the cache, or the disk is damaged: run initdb instead.
		if err := os.RemoveAll(dir.data()); err != nil {
			return "", err
		}
	}
	password = rand.Text()
	if err := initdb(ctx, bin, dir, password); err != nil {
		return "", err
	}
	if template != "" {
		_ = saveTemplate(dir, template, password) // a failure costs only time
	}
	return password, nil
}

// initdb makes a new data directory.
func initdb(ctx context.Context, bin string, dir *directory, password string) error {
	file := filepath.Join(dir.socket(), "password")
	if err := os.WriteFile(file, []byte(scramSecret(password)), 0o600); err != nil {
		return err
	}
	defer os.Remove(file)
	if err := dir.give(file); err != nil {
		return err
	}
	args := append([]string{"--pgdata=" + dir.data(), "--pwfile=" + file}, initdbArguments...)
	return execute(ctx, filepath.Join(bin, "initdb"), args, dir)
}

// execute executes a program of Postgres to its end.
func execute(ctx context.Context, program string, args []string, dir *directory) error {
	name := filepath.Base(program)
	offset := dir.logSize()
	p, err := startProcess(program, args, dir)
	if err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		p.end(shutdownImmediate)
		return fmt.Errorf("waiting for %s: %w", name, context.Cause(ctx))
	}
	if p.err != nil {
		return fmt.Errorf("%s: %w\n%s", name, p.err, dir.logFrom(offset))
	}
	return nil
}

// templatePath returns the path of the template for this Postgres, whether or not it exists, or "" if there is no safe
// place for one. The name is a hash of everything that decides the template's contents.
func templatePath(bin, version string) string {
	base := cacheDir()
	if base == "" {
		return ""
	}
	h := sha256.New()
	fmt.Fprintln(h, version, bin, initdbArguments, "hashed once")
	if info, err := os.Stat(filepath.Join(bin, "postgres")); err == nil {
		fmt.Fprintln(h, info.Size(), info.ModTime().UnixNano())
	}
	return filepath.Join(base, "template-"+hex.EncodeToString(h.Sum(nil))[:16])
}

// cacheDir returns a directory that only this user can write to, or "". It makes the directory if necessary.
func cacheDir() string {
	bases := []string{filepath.Join(os.TempDir(), fmt.Sprintf("kagzi-cache-%d", os.Getuid()))}
	if user, err := os.UserCacheDir(); err == nil {
		bases = append([]string{filepath.Join(user, "kagzi")}, bases...)
	}
	for _, base := range bases {
		dir := filepath.Join(base, "localpg")
		for _, d := range []string{base, dir} {
			_ = os.MkdirAll(filepath.Dir(d), 0o755)
			_ = os.Mkdir(d, 0o700) // not MkdirAll: it would accept a directory, or a link, that another user put there
		}
		if ownedByUs(base) && ownedByUs(dir) {
			return dir
		}
	}
	return ""
}

// templateLife is the time that a template is kept after its last use.
const templateLife = 60 * 24 * time.Hour

// pruneTemplates removes templates of Postgres versions that are no longer used, and the remains of processes that
// died.
func pruneTemplates(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil && time.Since(info.ModTime()) > templateLife {
			_ = os.RemoveAll(filepath.Join(dir, entry.Name()))
		}
	}
}

// saveTemplate copies the data directory to a template. Of several processes that do so at once, the first succeeds.
func saveTemplate(dir *directory, template, password string) error {
	pruneTemplates(filepath.Dir(template))
	tmp, err := os.MkdirTemp(filepath.Dir(template), "new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if err := copyTree(filepath.Join(tmp, "data"), dir.data(), func(string) error { return nil }); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(tmp, "password"), []byte(password), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, template) // fails if the template exists: a directory replaces only an empty one
}

// copyTemplate fills the data directory from the template.
func copyTemplate(dir *directory, template string) (password string, err error) {
	b, err := os.ReadFile(filepath.Join(template, "password"))
	if err != nil {
		return "", err
	}
	if err := copyTree(dir.data(), filepath.Join(template, "data"), dir.give); err != nil {
		return "", err
	}
	_ = os.Chtimes(template, time.Time{}, time.Now()) // so that it is not pruned soon
	return string(b), nil
}

// copyTree copies the directory src to dst, which must not exist, and calls made with each path that it creates.
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

// copyFile copies a file, inside the kernel if the system can.
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

//go:build unix

package localpg

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// A directory holds one server: its data, its socket, its log, and a lock that lives as long as the process
// it belongs to. The directory itself is ours; if we are root, data and socket belong to the user that
// Postgres runs as, because Postgres refuses to run as root.
type directory struct {
	path  string
	owner *syscall.Credential // nil: this process's user
	lock  *os.File
	log   *os.File
}

const directoryPrefix = "kagzi-pg-"

// maxSocketPath is what a Unix socket's address holds on the least generous system, less the terminating NUL.
const maxSocketPath = 103

// serverUser returns the user that Postgres runs as if this process is root, else nil.
func serverUser() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, err
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("this process is root, Postgres does not run as root, and there is neither a user postgres nor nobody")
}

// memoryDir is a file system in memory, on systems that have one. Making a file takes a small part of the time
// there, and a database is some 300 files.
const memoryDir = "/dev/shm"

// memoryNeeded is how much must be free for a server to be put there, in bytes.
const memoryNeeded = 4 << 30

// diskDirs returns where else directories may be made, best first.
func diskDirs() []string { return []string{os.TempDir(), "/tmp", "/var/tmp"} }

// newDirectory makes a directory for a server that runs as owner; on a disk if its data are to be durable.
func newDirectory(owner *syscall.Credential, durable bool) (_ *directory, err error) {
	bases := diskDirs()
	if !durable && memoryFree(memoryDir) >= memoryNeeded {
		bases = append([]string{memoryDir}, bases...)
	}
	var base string
	for _, b := range bases {
		longest := filepath.Join(b, directoryPrefix+"1234567890", "socket", ".s.PGSQL.65535.lock")
		if len(longest) <= maxSocketPath && (owner == nil || searchable(b)) && !missing(b) {
			base = b
			break
		}
	}
	if base == "" {
		return nil, fmt.Errorf("no temporary directory has a short path that the server's user can reach; tried %s", strings.Join(bases, ", "))
	}
	path, err := os.MkdirTemp(base, directoryPrefix)
	if err != nil {
		return nil, err
	}
	d := &directory{path: path, owner: owner}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.remove())
		}
	}()
	// Locked first and named afterwards: a sweep must not find it unlocked.
	if d.lock, err = lockFile(path+"/lock.new", os.O_CREATE|os.O_EXCL); err != nil {
		return nil, err
	}
	if err := os.Rename(path+"/lock.new", path+"/lock"); err != nil {
		return nil, err
	}
	if d.log, err = os.OpenFile(filepath.Join(path, "log"), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
		return nil, err
	}
	if owner != nil {
		if err := os.Chmod(path, 0o711); err != nil {
			return nil, err
		}
	}
	// initdb makes the data directory, and may do so only in a directory of its own.
	for _, sub := range []string{"socket", "pg"} {
		if err := os.Mkdir(filepath.Join(path, sub), 0o700); err != nil {
			return nil, err
		}
		if err := d.give(filepath.Join(path, sub)); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func (d *directory) data() string   { return filepath.Join(d.path, "pg", "data") }
func (d *directory) socket() string { return filepath.Join(d.path, "socket") }

// give makes path the server user's.
func (d *directory) give(path string) error {
	if d.owner == nil {
		return nil
	}
	return os.Lchown(path, int(d.owner.Uid), int(d.owner.Gid))
}

// logSize returns how much the server has logged so far.
func (d *directory) logSize() int64 {
	info, err := d.log.Stat()
	if err != nil {
		return 0
	}
	return info.Size()
}

// logFrom returns what the server has logged since the log had this size, or its last 8 KiB.
func (d *directory) logFrom(offset int64) string {
	size := d.logSize()
	offset = max(offset, size-8<<10)
	b, _ := io.ReadAll(io.NewSectionReader(d.log, offset, size-offset))
	return strings.TrimSpace(string(b))
}

// remove deletes the directory. No process may use it any more.
func (d *directory) remove() error {
	err := os.RemoveAll(d.path)
	if d.log != nil {
		_ = d.log.Close()
	}
	if d.lock != nil {
		_ = d.lock.Close() // which releases the lock
	}
	return err
}

// sweep removes the directories of processes that died without a Stop. Their servers died with them.
func sweep() {
	for _, base := range append(diskDirs(), memoryDir) {
		found, _ := filepath.Glob(filepath.Join(base, directoryPrefix+"*"))
		for _, path := range found {
			sweepDirectory(path)
		}
	}
}

func sweepDirectory(path string) {
	if !ownedByUs(path) {
		return
	}
	lock, err := lockFile(filepath.Join(path, "lock"), 0)
	if err != nil {
		return // in use, being made or being removed
	}
	defer lock.Close()
	// A dying server may be some milliseconds behind its parent. One that outlives it altogether, because it
	// was frozen, say, keeps its directory until a later sweep.
	if !missing(filepath.Join(path, "pg", "data", "postmaster.pid")) && serverAlive(path) {
		return
	}
	_ = os.RemoveAll(path)
}

// serverAlive reports whether the process that wrote postmaster.pid still exists.
func serverAlive(path string) bool {
	b, err := os.ReadFile(filepath.Join(path, "pg", "data", "postmaster.pid"))
	if err != nil {
		return false
	}
	first, _, _ := strings.Cut(string(b), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(first))
	return err == nil && pid > 0 && !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

// lockFile opens the file, with further flags for that, and locks it until it is closed, or until this process
// ends in whatever way.
func lockFile(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, flags|os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// ownedByUs reports whether path is a directory, not a link to one, that this user owns and nobody else can
// write to. In a directory that everybody can write to, anything else may be a trap.
func ownedByUs(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.IsDir() || info.Mode().Perm()&0o022 != 0 {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Getuid()
}

// searchable reports whether everybody may pass through dir and all that lies above it.
func searchable(dir string) bool {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false
	}
	for {
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm()&0o001 == 0 {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
		dir = filepath.Dir(dir)
	}
}

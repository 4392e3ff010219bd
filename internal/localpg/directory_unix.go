//go:build unix

package localpg

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// A directory holds one server: its data, its socket, its log, and a lock that this process holds until it ends. The
// directory belongs to this user. If this user is root, data and socket belong to the user that Postgres runs as,
// because Postgres refuses to run as root.
type directory struct {
	path  string
	owner *syscall.Credential // nil: this process's user
	lock  *os.File
	log   *os.File
}

const directoryPrefix = "kagzi-pg-"

// maxSocketPath is the longest path of a Unix socket that every system accepts, without the terminating NUL.
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
	return nil, errors.New("this process is root, Postgres does not run as root, and there is neither a user " +
		"postgres nor nobody")
}

// memoryDir is a file system in memory, on systems that have one. Creating a file there is much faster than on a disk,
// and a database has some 300 files.
const memoryDir = "/dev/shm"

// memoryNeeded is the number of bytes that must be free for a server to be put there.
const memoryNeeded = 4 << 30

// diskDirs returns the other directories in which servers may be put, best first.
func diskDirs() []string { return []string{os.TempDir(), "/tmp", "/var/tmp"} }

// newDirectory makes a directory for a server that runs as owner: in the directory in, or if that is empty, anywhere;
// then on a disk if durable.
func newDirectory(owner *syscall.Credential, durable bool, in string) (*directory, error) {
	base, err := baseFor(owner, durable, in)
	if err != nil {
		return nil, err
	}
	path, err := os.MkdirTemp(base, directoryPrefix)
	if err != nil {
		return nil, err
	}
	d := &directory{path: path, owner: owner}
	if err := d.fill(); err != nil {
		return nil, errors.Join(err, d.remove())
	}
	return d, nil
}

// baseFor returns the directory in which newDirectory makes one.
func baseFor(owner *syscall.Credential, durable bool, in string) (string, error) {
	bases := diskDirs()
	if !durable && memoryFree(memoryDir) >= memoryNeeded {
		bases = append([]string{memoryDir}, bases...)
	}
	if in != "" {
		bases = []string{in}
	}
	for _, b := range bases {
		longest := filepath.Join(b, directoryPrefix+"1234567890", "socket", ".s.PGSQL.65535.lock")
		if len(longest) <= maxSocketPath && (owner == nil || searchable(b)) && !missing(b) {
			return b, nil
		}
	}
	return "", fmt.Errorf("no temporary directory has a short path that the server's user can reach; tried %s",
		strings.Join(bases, ", "))
}

// fill makes the lock, the log and the folders of a directory that is empty.
func (d *directory) fill() (err error) {
	// The file gets its name after it is locked: a sweep must not find it unlocked.
	if d.lock, err = lockFile(d.path+"/lock.new", os.O_CREATE|os.O_EXCL); err != nil {
		return err
	}
	if err := os.Rename(d.path+"/lock.new", d.path+"/lock"); err != nil {
		return err
	}
	if d.log, err = os.OpenFile(d.logFile(), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
		return err
	}
	if d.owner != nil {
		if err := os.Chmod(d.path, 0o711); err != nil {
			return err
		}
	}
	// initdb makes the data directory, and may do so only in a directory of its own.
	for _, sub := range []string{"socket", "pg"} {
		if err := os.Mkdir(filepath.Join(d.path, sub), 0o700); err != nil {
			return err
		}
		if err := d.give(filepath.Join(d.path, sub)); err != nil {
			return err
		}
	}
	return nil
}

// another makes a directory beside d for another server.
func (d *directory) another() (*directory, error) {
	return newDirectory(d.owner, false, filepath.Dir(d.path))
}

func (d *directory) data() string    { return filepath.Join(d.path, "pg", "data") }
func (d *directory) socket() string  { return filepath.Join(d.path, "socket") }
func (d *directory) logFile() string { return filepath.Join(d.path, "log") }

// give makes the server's user the owner of path.
func (d *directory) give(path string) error {
	if d.owner == nil {
		return nil
	}
	return os.Lchown(path, int(d.owner.Uid), int(d.owner.Gid))
}

// logSize returns the size of the server's log.
func (d *directory) logSize() int64 {
	info, err := d.log.Stat()
	if err != nil {
		return 0
	}
	return info.Size()
}

// logFrom returns the log from offset on, at most its last 8 KiB.
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
	// A server may end some milliseconds after its parent. One that outlives it, because it is stopped by a signal for
	// example, keeps its directory until a later sweep.
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

// lockFile opens the file with the additional flags, and locks it until it is closed or this process ends.
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

// ownedByUs reports whether path is a directory, not a link to one, that this user owns and no other user can write to.
// Anything else may have been put by an attacker into a directory that all users can write to.
func ownedByUs(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.IsDir() || info.Mode().Perm()&0o022 != 0 {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Getuid()
}

// searchable reports whether every user may search dir and all directories above it.
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

// missing reports whether path does not exist.
func missing(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

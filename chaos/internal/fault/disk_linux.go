package fault

import (
	"os"
	"strconv"
	"syscall"
)

// mount mounts a file system in memory with so many bytes.
func mount(dir string, size int) error {
	return syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=755,size="+strconv.Itoa(size))
}

func unmount(dir string) error { return syscall.Unmount(dir, syscall.MNT_DETACH) }

// allocate gives a file the disk space for so many bytes from offset on.
func allocate(f *os.File, offset, bytes int64) error {
	return syscall.Fallocate(int(f.Fd()), 0, offset, bytes)
}

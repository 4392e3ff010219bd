package localpg

import "syscall"

// memoryFree returns how many bytes are free in dir, or 0 if it is not in memory.
func memoryFree(dir string) uint64 {
	const tmpfs = 0x01021994
	var stat syscall.Statfs_t
	if err := syscall.Statfs(dir, &stat); err != nil || int64(stat.Type) != tmpfs {
		return 0
	}
	return stat.Bavail * uint64(stat.Bsize)
}

//go:build unix && !linux

package localpg

// memoryFree returns 0: these systems have no file system in memory that all users can use.
func memoryFree(string) uint64 { return 0 }

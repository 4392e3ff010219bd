//go:build amd64 || arm64

package goroutine

func current() uintptr

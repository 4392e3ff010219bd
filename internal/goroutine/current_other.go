//go:build !amd64 && !arm64

package goroutine

import (
	"bytes"
	"runtime"
)

// current parses "goroutine 123 [running]:…".
func current() uintptr {
	var buf [40]byte
	text := buf[len("goroutine "):runtime.Stack(buf[:], false)]
	digits, _, _ := bytes.Cut(text, []byte(" "))
	var id uintptr
	for _, d := range digits {
		id = id*10 + uintptr(d-'0')
	}
	return id
}

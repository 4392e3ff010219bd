//go:build !unix

package localpg

import (
	"errors"
	"runtime"
)

// On systems other than Unix no server is started: [Open] works with KAGZI_TEST_DATABASE_URL only.

var errUnsupported = errors.New("cannot start a Postgres on " + runtime.GOOS + "; set KAGZI_TEST_DATABASE_URL to a " +
	"running server's")

type signal int

const (
	shutdownFast signal = iota
	shutdownImmediate
)

type credential struct{}

func serverUser() (*credential, error) { return nil, errUnsupported }

type directory struct{}

func newDirectory(*credential, bool, string) (*directory, error) { return nil, errUnsupported }

func (*directory) data() string         { return "" }
func (*directory) socket() string       { return "" }
func (*directory) logFile() string      { return "" }
func (*directory) give(string) error    { return errUnsupported }
func (*directory) logSize() int64       { return 0 }
func (*directory) logFrom(int64) string { return "" }
func (*directory) remove() error        { return nil }

func sweep() {}

func ownedByUs(string) bool { return false }

type process struct {
	done chan struct{}
	err  error
}

func (*directory) another() (*directory, error) { return nil, errUnsupported }

func startProcess(string, []string, *directory, ...string) (*process, error) {
	return nil, errUnsupported
}

func (*process) end(signal) {}
func (*process) pid() int   { return 0 }

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// A server is a process beside Postgres that an engine needs. It writes a line with its address once it is ready, and
// ends when its standard input does.
type server struct {
	address string
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	said    chan error // the end of its output
}

// startServer starts a program, and returns once it is ready.
func startServer(ctx context.Context, program string, args ...string) (*server, error) {
	s := &server{cmd: exec.Command(program, args...), said: make(chan error, 1)}
	s.cmd.Stderr = os.Stderr
	var err error
	if s.stdin, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	ready := make(chan string, 1)
	go func() {
		out := bufio.NewReader(stdout)
		line, _ := out.ReadString('\n')
		ready <- strings.TrimSpace(line)
		_, err := io.Copy(io.Discard, out)
		s.said <- err
	}()
	select {
	case s.address = <-ready:
		if s.address == "" {
			err = errors.New("it ended before it was ready")
		}
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", program, err), s.stop())
	}
	return s, nil
}

// stop ends the server in order, or after half a minute by force.
func (s *server) stop() error {
	_ = s.stdin.Close()
	kill := time.AfterFunc(30*time.Second, func() { _ = s.cmd.Process.Kill() })
	defer kill.Stop()
	return errors.Join(<-s.said, s.cmd.Wait())
}

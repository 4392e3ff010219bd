package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	onlyCheck := flag.Bool("check", false, "only say what is missing")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: make release VERSION=v0.1.0, or go run ./internal/release [-check] v0.1.0")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	if err := release(ctx, flag.Arg(0), *onlyCheck); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		stop()
		os.Exit(1)
	}
}

// release checks the repository in the current folder. If nothing is missing, it makes the release and prints the
// commands that publish it.
func release(ctx context.Context, version string, onlyCheck bool) error {
	dir, err := run(ctx, ".", nil, "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	s, err := newState(ctx, dir, version)
	if err != nil {
		return err
	}
	if err := s.check(ctx, os.Stdout); err != nil || onlyCheck {
		return err
	}
	temp, err := os.MkdirTemp("", "kagzi-release-")
	if err != nil {
		return err
	}
	err = publishable(ctx, s, temp)
	return errors.Join(err, os.RemoveAll(temp))
}

// publishable makes the release commit, installs the release in an empty folder, and writes dist.
func publishable(ctx context.Context, s *state, temp string) error {
	c, err := newCandidate(ctx, s.dir, "HEAD", s.version, temp)
	if err != nil {
		return err
	}
	program, err := firstProgram(c.clone)
	if err != nil {
		return err
	}
	fmt.Println("installing the release in an empty folder …")
	if err := c.install(ctx, program); err != nil {
		return err
	}
	dist := filepath.Join(s.dir, "dist", s.version)
	fmt.Println("writing the bills of materials …")
	if err := c.writeDist(ctx, dist); err != nil {
		return err
	}
	// The commits, and not the tags: those are made by the commands below.
	if _, err := run(ctx, s.dir, nil, "git", "fetch", "--quiet", "--no-tags", c.clone, "after"); err != nil {
		return err
	}
	fmt.Printf("\nNothing is missing. %s has the files to attach to the release.\n", dist)
	fmt.Printf("These commands publish it, from the branch that is released:\n\n%s", c.commands())
	return nil
}

// commands returns the commands that tag and push the release.
func (c *candidate) commands() string {
	var b strings.Builder
	push := "git push --atomic origin HEAD"
	for _, folder := range public {
		tag := tagOf(folder, c.version)
		fmt.Fprintf(&b, "git tag %s %s\n", tag, c.commit)
		push += " " + tag
	}
	fmt.Fprintf(&b, "git merge --ff-only %s\n%s\n", c.after, push)
	return b.String()
}

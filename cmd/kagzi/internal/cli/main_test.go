package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/cli"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// A shell executes commands of kagzi.
type shell struct {
	t   *testing.T
	env map[string]string
	in  string
	// sealer is that of the program; nil: none.
	sealer kagzi.Sealer
	// terminal is the width of the terminal; zero: input and outputs are pipes.
	terminal int
}

// A result is what a command has left behind.
type result struct {
	t        *testing.T
	command  string
	out, err string
	code     int
}

// newShell returns a kit, and a shell for its database.
func newShell(t *testing.T, opts ...dbtest.Option) (*kit.Kit, *shell) {
	t.Helper()
	t.Parallel()
	db := dbtest.Database(t, opts...)
	k := &kit.Kit{T: t, Ctx: kit.Context(t), Pool: db.Pool, Client: kit.NewClient(t, db.Pool)}
	return k, &shell{t: t, env: map[string]string{"KAGZI_DATABASE_URL": db.DSN}}
}

// run executes a command, whose arguments have no spaces, and more arguments, which may have some.
func (s *shell) run(command string, more ...string) result {
	s.t.Helper()
	return s.runCtx(s.t.Context(), command, more...)
}

func (s *shell) runCtx(ctx context.Context, command string, more ...string) result {
	s.t.Helper()
	var out, err bytes.Buffer
	code := cli.Run(ctx, append(strings.Fields(command), more...), s.world(strings.NewReader(s.in), &out, &err))
	r := result{s.t, strings.Join(append([]string{command}, more...), " "), out.String(), err.String(), code}
	if strings.Contains(r.out+r.err, "\x00") || strings.Contains(r.out+r.err, "%!") {
		s.t.Errorf("kagzi %s prints\n%s%s", r.command, r.out, r.err)
	}
	return r
}

func (s *shell) world(in io.Reader, out, err io.Writer) command.World {
	return command.World{
		In: in, Out: out, Err: err,
		Env:     func(name string) (string, bool) { v, ok := s.env[name]; return v, ok },
		Columns: func(any) int { return s.terminal },
		Sealer:  s.sealer, Patience: time.Minute,
	}
}

// ok fails the test unless the command ended with code 0.
func (r result) ok() result { r.t.Helper(); return r.exits(0) }

// exits fails the test unless the command ended with the code.
func (r result) exits(code int) result {
	r.t.Helper()
	if r.code != code {
		r.t.Fatalf("kagzi %s exits with %d, want %d:\n%s%s", r.command, r.code, code, r.out, r.err)
	}
	return r
}

// prints fails the test unless stdout has all of the texts.
func (r result) prints(texts ...string) result {
	r.t.Helper()
	for _, text := range texts {
		if !strings.Contains(r.out, text) {
			r.t.Errorf("kagzi %s does not print %q:\n%s%s", r.command, text, r.out, r.err)
		}
	}
	return r
}

// prints fails the test if stdout has one of the texts.
func (r result) omits(texts ...string) result {
	r.t.Helper()
	for _, text := range texts {
		if strings.Contains(r.out, text) {
			r.t.Errorf("kagzi %s prints %q:\n%s", r.command, text, r.out)
		}
	}
	return r
}

// says fails the test unless stderr has all of the texts.
func (r result) says(texts ...string) result {
	r.t.Helper()
	for _, text := range texts {
		if !strings.Contains(r.err, text) {
			r.t.Errorf("kagzi %s does not say %q:\n%s", r.command, text, r.err)
		}
	}
	return r
}

// jsonOf reads the JSON that a command prints with --json.
func jsonOf[T any](r result) (v T) {
	r.t.Helper()
	d := json.NewDecoder(strings.NewReader(r.out))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		r.t.Fatalf("kagzi %s prints no JSON of a %T: %v\n%s%s", r.command, v, err, r.out, r.err)
	}
	if d.More() {
		r.t.Errorf("kagzi %s prints more than one value", r.command)
	}
	return v
}

// runWith executes a command with other outputs.
func runWith(s *shell, command string, out, err io.Writer) int {
	s.t.Helper()
	return cli.Run(s.t.Context(), strings.Fields(command), s.world(strings.NewReader(s.in), out, err))
}

package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi/internal/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// The program is killed while the run sleeps. Started again, it continues the run.
func TestCarriesOnAfterKill(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	hello := filepath.Join(t.TempDir(), "hello")
	if out, err := exec.Command("go", "build", "-o", hello, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	start := func() (*exec.Cmd, *strings.Builder) {
		out := &strings.Builder{}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		t.Cleanup(cancel)
		cmd := exec.CommandContext(ctx, hello)
		cmd.Env = append(os.Environ(), "DATABASE_URL="+db.DSN)
		cmd.Stdout, cmd.Stderr = out, os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd, out
	}

	first, said := start()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for asleep := 0; asleep == 0; <-tick.C {
		if err := db.Pool.QueryRow(t.Context(), `SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'SLEEPING'`).
			Scan(&asleep); err != nil {
			t.Fatal(err)
		}
	}
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait() // it was killed
	if want := "creating an account for ada\n"; said.String() != want {
		t.Errorf("before it was killed the program said %q, want %q", said, want)
	}

	second, said := start()
	if err := second.Wait(); err != nil {
		t.Fatalf("the second start: %v", err)
	}
	if want := "sending a welcome to account-of-ada\nsigned up: account-of-ada\n"; said.String() != want {
		t.Errorf("started again the program said %q, want %q", said, want)
	}
}

func TestSaysThatTheURLIsMissing(t *testing.T) {
	t.Parallel()
	if err := run(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "DATABASE_URL is not set") {
		t.Errorf("run without a URL: %v", err)
	}
}

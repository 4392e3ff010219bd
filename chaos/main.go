// Chaos proves Kagzi: it runs real workers against a real Postgres, breaks what they depend on by a plan made from a
// seed, and checks that every promise was kept.
//
//	go run . -seed 7 -duration 60s
//
// It prints the plan, what the faults did, and PASS, FAIL with the history of the runs concerned, or INVALID if the
// round proves nothing. The exit code is 0, 1 or 3, and 2 after flags that are wrong; go run makes 1 of each but 0.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"github.com/kagzi/kagzi/chaos/internal/driver"
	"github.com/kagzi/kagzi/chaos/internal/fleet"
	"github.com/kagzi/kagzi/chaos/internal/worker"
)

func main() {
	if spec := os.Getenv(fleet.Env); spec != "" {
		os.Exit(worker.Main(spec))
	}
	os.Exit(run(os.Args[1:]))
}

// The exit codes.
const (
	pass    = 0
	fail    = 1
	misuse  = 2 // of the flags
	invalid = 3
)

// run plays rounds as the arguments say, and returns the exit code.
func run(args []string) int {
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	o := driver.Options{Log: func(format string, args ...any) { fmt.Printf(format+"\n", args...) }}
	flags.Uint64Var(&o.Seed, "seed", uint64(time.Now().UnixNano()%1_000_000), "what the plan is made from")
	flags.DurationVar(&o.Duration, "duration", time.Minute, "from the first start to the end of the last fault")
	flags.IntVar(&o.Workers, "workers", 4, "how many worker processes there are")
	flags.IntVar(&o.Customers, "customers", 40, "how many clients work at the same time, each at one job after "+
		"the other")
	flags.StringVar(&o.Server, "server", "plain", "the kind of server: \"plain\", \"synchronous standby\", "+
		"\"asynchronous standby\", \"pgbouncer\", \"clock that jumps\", \"small disk\", \"bad disk\", \"databases\", "+
		"or \"any\", "+
		"which lets the seed choose (an even one takes \"plain\")")
	faults := flags.String("faults", "", "a regular expression for the names of the faults; all if it is empty")
	keep := flags.String("keep", "", "a directory for ledgers and logs, which must be empty or not exist, and stays; "+
		"otherwise they go after a round that passes")
	flags.BoolVar(&o.Deaf, "deaf", false, "all hints are lost, and no listener knows: all bounds must hold by "+
		"polling alone")
	flags.BoolVar(&o.Soak, "soak", false, "delete ended runs soon, audit nothing, and stop when goroutines, memory, "+
		"connections, dead tuples or tables grow")
	records := flags.String("record", "", "a file to which the round's figures are added, as one line of JSON")
	table := flags.String("table", "", "print what the records in this file say together, and do nothing else")
	long := flags.Duration("for", 0, "play rounds with this seed, the next, and so on, until the time is over")
	only := flags.Bool("plan", false, "print the plan only")
	flags.SetOutput(io.Discard)
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		flags.SetOutput(os.Stdout)
		flags.PrintDefaults()
		return pass
	case err != nil:
		return usage(fmt.Errorf("%w: a length has a unit, as in 60s; -h lists the flags", err))
	}
	if flags.NArg() > 0 {
		return usage(fmt.Errorf("unexpected argument %q: there are flags only, which -h lists; a name with a space "+
			"needs quotes", flags.Arg(0)))
	}
	if *table != "" {
		if err := driver.Summarize(os.Stdout, *table); err != nil {
			return usage(err)
		}
		return pass
	}
	if err := errors.Join(numbers(o, *long), unused(*keep), writable(*records)); err != nil {
		return usage(err)
	}
	if *faults != "" {
		var err error
		if o.Faults, err = regexp.Compile(*faults); err != nil {
			return usage(fmt.Errorf("-faults: %w", err))
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	worst := pass
	for begun := time.Now(); ; o.Seed++ {
		dir := *keep
		if dir != "" && *long > 0 {
			dir = filepath.Join(dir, fmt.Sprint("seed-", o.Seed))
		}
		code := round(ctx, o, dir, *records, *only)
		if code == fail || worst == pass {
			worst = code
		}
		if ctx.Err() != nil || *only || time.Since(begun) >= *long {
			return worst
		}
	}
}

// numbers returns an error if there is nothing to play.
func numbers(o driver.Options, long time.Duration) error {
	switch {
	case o.Duration <= 0:
		return fmt.Errorf("-duration %v: give a length such as 60s", o.Duration)
	case o.Workers < 1:
		return fmt.Errorf("-workers %d: give at least 1", o.Workers)
	case o.Customers < 1:
		return fmt.Errorf("-customers %d: give at least 1", o.Customers)
	case long < 0:
		return fmt.Errorf("-for %v: give a length such as 2h, or 0 for one round", long)
	}
	return nil
}

// writable returns an error if a line cannot be added to a file: better now than after the round.
func writable(file string) error {
	if file == "" {
		return nil
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("-record: %w", err)
	}
	return f.Close()
}

// unused returns an error if a directory is there and has something in it: the ledgers of an earlier round would be
// evidence in the next.
func unused(dir string) error {
	if dir == "" {
		return nil
	}
	all, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case len(all) > 0:
		return fmt.Errorf("-keep %s: the directory is not empty, and the ledgers of two rounds must not mix: name "+
			"one that is empty, or that does not exist", dir)
	}
	return nil
}

// round plays one round, and returns its exit code.
func round(ctx context.Context, o driver.Options, keep, records string, only bool) int {
	var err error
	if o.Dir = keep; keep == "" {
		if o.Dir, err = os.MkdirTemp("", "kagzi-chaos-"); err == nil {
			err = os.Chmod(o.Dir, 0o755) // the server runs as another user
		}
	} else {
		err = os.MkdirAll(keep, 0o755)
	}
	if err != nil {
		return usage(err)
	}
	if only && keep == "" {
		defer os.RemoveAll(o.Dir)
	}
	record, err := driver.Play(ctx, os.Stdout, o, only)
	if err != nil {
		if keep == "" {
			_ = os.Remove(o.Dir) // if it is empty
		}
		if bad, ok := errors.AsType[driver.OptionError](err); ok {
			return usage(bad)
		}
		if ctx.Err() != nil {
			err = errors.New("the round was interrupted")
		}
		fmt.Println("INVALID:", err)
		if left, _ := os.ReadDir(o.Dir); len(left) > 0 && !only {
			fmt.Println("ledgers and logs:", o.Dir)
		}
		return invalid
	}
	if only {
		return pass
	}
	if records != "" {
		if err := record.Append(records); err != nil {
			return usage(err)
		}
	}
	if record.Verdict == driver.Pass && keep == "" {
		_ = os.RemoveAll(o.Dir)
	} else {
		fmt.Println("ledgers and logs:", o.Dir)
	}
	return map[driver.Verdict]int{driver.Pass: pass, driver.Fail: fail, driver.Invalid: invalid}[record.Verdict]
}

func usage(err error) int {
	fmt.Fprintln(os.Stderr, "chaos:", err)
	return misuse
}

// Chaos proves Kagzi: it runs real workers against a real Postgres, breaks what they depend on by a plan made from a seed, and checks
// that every promise was kept.
//
//	go run . -seed 7 -duration 60s
//
// It prints the plan, what the faults did, and PASS, FAIL with the history of the runs concerned, or INVALID if the round proves
// nothing. The exit code is 0, 1 or 2.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
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
	os.Exit(run())
}

// The exit codes.
const (
	pass    = 0
	fail    = 1
	invalid = 2
)

func run() int {
	o := driver.Options{Log: func(format string, args ...any) { fmt.Printf(format+"\n", args...) }}
	flag.Uint64Var(&o.Seed, "seed", uint64(time.Now().UnixNano()%1_000_000), "what the plan is made from")
	flag.DurationVar(&o.Duration, "duration", time.Minute, "from the first start to the end of the last fault")
	flag.IntVar(&o.Workers, "workers", 4, "how many worker processes there are")
	flag.IntVar(&o.Customers, "customers", 40, "how many clients have one job each")
	flag.StringVar(&o.Ground, "ground", "", "the kind of server: \"synchronous standby\", \"asynchronous standby\", \"pgbouncer\", \"clock that jumps\", \"small disk\", \"bad disk\", or \"any\", which lets the seed choose; a plain one if it is empty")
	faults := flag.String("faults", "", "a regular expression for the names of the faults; all if it is empty")
	keep := flag.String("keep", "", "a directory for ledgers and logs, which stays; otherwise they go after a round that passes")
	flag.BoolVar(&o.Deaf, "deaf", false, "no notification reaches anybody: all bounds must hold by polling alone")
	flag.BoolVar(&o.Soak, "soak", false, "delete ended runs soon, audit nothing, and stop when goroutines, memory, connections, dead tuples or tables grow")
	records := flag.String("record", "", "a file to which the round's figures are added, as one line of JSON")
	table := flag.String("table", "", "print what the records in this file say together, and do nothing else")
	long := flag.Duration("for", 0, "play rounds with this seed, the next, and so on, until the time is over")
	only := flag.Bool("plan", false, "print the plan only")
	flag.Parse()
	if *table != "" {
		if err := driver.Summarize(os.Stdout, *table); err != nil {
			return usage(err)
		}
		return pass
	}
	if *faults != "" {
		var err error
		if o.Faults, err = regexp.Compile(*faults); err != nil {
			return usage(err)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	worst := pass
	for begun := time.Now(); ; o.Seed++ {
		code := round(ctx, o, *keep, *records, *only)
		if code == fail || worst == pass {
			worst = code
		}
		if ctx.Err() != nil || *only || time.Since(begun) >= *long {
			return worst
		}
	}
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
	record, err := driver.Play(ctx, os.Stdout, o, only)
	if err != nil {
		fmt.Println("INVALID:", err)
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
	return invalid
}

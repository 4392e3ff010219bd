// Command bench compares Kagzi with River, DBOS, go-workflows, Temporal and raw SQL on a throwaway Postgres: see
// README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	runAsChild()
	cfg := config{log: os.Stderr}
	flag.IntVar(&cfg.rows, "rows", 1_000_000, "how many ended and how many sleeping runs a full database has")
	pattern := flag.String("run", "", "measure only the figures whose group and name match this regular expression")
	only := flag.String("engines", "", "measure only the engines whose name matches this regular expression")
	flag.IntVar(&cfg.rounds, "rounds", 5, "how many rounds to measure each figure")
	flag.BoolVar(&cfg.quick, "quick", false, "only try that every figure works, with few runs and one round")
	flag.StringVar(&cfg.out, "out", "", "folder for RESULTS.md and the plots; none: the report goes to the "+
		"standard output")
	soakFor := flag.Duration("soak", 0, "instead of the figures, put constant load on Kagzi for this long, such as 6h")
	snapshot := flag.Duration("snapshot", 0, "how long another session holds a snapshot during the soak; 0: a "+
		"sixth of it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if *snapshot < 0 || *snapshot > *soakFor {
		err = fmt.Errorf("-snapshot is %s, and the soak %s: it must be between 0 and that", *snapshot, *soakFor)
	} else if cfg.run, cfg.only, err = patterns(*pattern, *only); err == nil {
		if *soakFor > 0 {
			err = soak(ctx, cfg, *soakFor, *snapshot)
		} else {
			err = measure(ctx, cfg)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func patterns(run, only string) (_, _ *regexp.Regexp, err error) {
	r, err := regexp.Compile(run)
	if err != nil {
		return nil, nil, err
	}
	o, err := regexp.Compile(only)
	return r, o, err
}

func figures(l *lab) (all []figure) {
	all = append(all, startFigures(l)...)
	all = append(all, drainFigures(l)...)
	all = append(all, fullFigure(l))
	all = append(all, fleetFigures(l)...)
	all = append(all, payloadFigures(l)...)
	all = append(all, steadyFigures(l)...)
	all = append(all, latencyFigures(l)...)
	all = append(all, timerFigures(l)...)
	all = append(all, snapshotFigure(l), memoryFigure(l))
	return append(all, idleFigures(l)...)
}

func measure(ctx context.Context, cfg config) error {
	l, err := openLab(ctx, cfg)
	if err != nil {
		return err
	}
	begun := time.Now()
	var all []outcome
	var failed error // of single figures: the report has the others
	for _, f := range figures(l) {
		if !cfg.run.MatchString(f.group + ": " + f.name) {
			continue
		}
		f.subjects = slices.DeleteFunc(f.subjects, func(s subject) bool { return !cfg.measures(s.name) })
		var outcomes []outcome
		err := f.build()
		if err == nil {
			outcomes, err = f.measure(ctx, cfg)
		}
		if ctx.Err() != nil { // interrupted: the report has the figures so far
			break
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %s: %w", f.group, f.name, err))
			continue
		}
		all = append(all, outcomes...)
	}
	about, err := l.describe(context.WithoutCancel(ctx))
	if err := errors.Join(err, l.close()); err != nil {
		return err
	}
	about = append(about, fmt.Sprintf("Command: `go run . %s`, which took %s", strings.Join(os.Args[1:], " "),
		time.Since(begun).Round(time.Second)))
	return errors.Join(failed, write(cfg.out, about, all))
}

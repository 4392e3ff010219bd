// Command bench compares Kagzi with River and with raw SQL on a throwaway Postgres: see README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"
)

func main() {
	runAsChild()
	cfg := config{log: os.Stderr}
	pattern := flag.String("run", "", "measure only the figures whose group and name match this regular expression")
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
	} else if cfg.run, err = regexp.Compile(*pattern); err == nil {
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

type config struct {
	run    *regexp.Regexp
	rounds int
	quick  bool
	out    string
	log    *os.File
}

// A figure is measured for several subjects by turns.
type figure struct {
	group    string   // the figures of a group form one table
	name     string   // within the group
	columns  []string // names of the values, the same in the whole group
	rounds   int      // at most; zero: as many as the command line says
	subjects []subject
	close    func() // frees what the rounds share; nil: nothing
}

// A subject is what a figure is measured for.
type subject struct {
	name  string
	round func(context.Context) (sample, error)
}

// A sample is the result of one round.
type sample struct {
	values []float64 // NaN: the subject has no such value
	cost   cost
	curve  []point
}

type point struct{ x, y float64 }

// An outcome is everything measured for one subject of a figure.
type outcome struct {
	figure  figure
	subject string
	samples []sample
	thrown  int // rounds that were thrown away because others used the processors
	noisy   int // rounds that were kept although they did
}

// Others may use or steal this much of one processor during a round. A round in which they take more is repeated.
const tolerated = 0.2

func figures(l *lab) (all []figure) {
	all = append(all, startFigures(l)...)
	all = append(all, drainFigures(l)...)
	all = append(all, fullFigure(l))
	all = append(all, steadyFigures(l)...)
	all = append(all, latencyFigures(l)...)
	all = append(all, timerFigures(l)...)
	all = append(all, snapshotFigure(l), memoryFigure(l))
	return append(all, idleFigures(l)...)
}

func measure(ctx context.Context, cfg config) error {
	l, err := openLab(ctx, cfg.quick)
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
		outcomes, err := f.measure(ctx, cfg)
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

// measure measures the subjects by turns, and starts each round with another one.
func (f figure) measure(ctx context.Context, cfg config) ([]outcome, error) {
	if f.close != nil {
		defer f.close()
	}
	rounds := cfg.rounds
	if f.rounds > 0 {
		rounds = min(rounds, f.rounds)
	}
	if cfg.quick {
		rounds = 1
	}
	outcomes := make([]outcome, len(f.subjects))
	for round := range rounds {
		for i := range f.subjects {
			i := (i + round) % len(f.subjects)
			o := &outcomes[i]
			o.figure, o.subject = f, f.subjects[i].name
			if err := o.measure(ctx, f.subjects[i], cfg, rounds); err != nil {
				return nil, fmt.Errorf("%s: %w", o.subject, err)
			}
		}
	}
	return outcomes, nil
}

// measure adds one round. It repeats rounds that others disturbed, though not for ever.
func (o *outcome) measure(ctx context.Context, s subject, cfg config, rounds int) error {
	for {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
		begun := time.Now()
		got, err := s.round(ctx)
		took := time.Since(begun)
		cancel()
		if err != nil {
			return err
		}
		noisy := got.cost.Others > tolerated && !cfg.quick
		fmt.Fprintf(cfg.log, "%5.1fs  %s: %s: %s: %.4g (others %.2f)\n", took.Seconds(), o.figure.group, o.figure.name,
			s.name, got.values, got.cost.Others)
		if noisy && o.thrown < 2*rounds {
			o.thrown++
			continue
		}
		if noisy {
			o.noisy++
		}
		o.samples = append(o.samples, got)
		return nil
	}
}

package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"time"
)

type config struct {
	run    *regexp.Regexp
	only   *regexp.Regexp // the engines that are measured; nil: all
	rounds int
	quick  bool
	rows   int // see lab.rows
	out    string
	log    *os.File
}

// measures reports whether an engine is measured.
func (cfg config) measures(engine string) bool {
	return cfg.only == nil || cfg.only.MatchString(engine)
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

// build builds the servers of the figure's engines, because a round has not the time.
func (f figure) build() error {
	for _, s := range f.subjects {
		e, err := engineNamed(s.name)
		if err != nil {
			return err
		}
		if e, ok := e.(served); ok {
			if err := e.build(); err != nil {
				return err
			}
		}
	}
	return nil
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

// measure adds one round. It repeats rounds that others disturbed, though not without end.
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

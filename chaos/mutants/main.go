// Mutants proves that chaos finds mistakes: it builds chaos with one plausible mistake in Kagzi at a time, and plays
// the seeds that must find it.
//
//	go run ./mutants                     # all of them
//	go run ./mutants -run 'lease|claim'  # those whose name matches
//	go run ./mutants -control            # also plays each round that has killed one without the mistake: it must pass
//
// It prints a table, with the seed and the violations that killed each mutant, or SURVIVED: then the checker or the
// faults have a hole. The exit code is 1 if one survived.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
)

func main() { os.Exit(run()) }

func run() int {
	which := flag.String("run", "", "a regular expression for the names of the mutants; all if it is empty")
	list := flag.Bool("list", false, "list the mutants only")
	control := flag.Bool("control", false, "play each round that has killed a mutant without the mistake, too")
	keep := flag.String("keep", "", "a directory for what the rounds print and leave; otherwise it goes at the end")
	flag.Parse()
	if flag.NArg() > 0 {
		return usage(fmt.Errorf("unexpected argument %q: -run chooses mutants by name", flag.Arg(0)))
	}
	names, err := regexp.Compile(*which)
	if err != nil {
		return usage(fmt.Errorf("-run: %w", err))
	}
	var chosen []Mutant
	for _, m := range Mutants() {
		if names.MatchString(m.Name) {
			chosen = append(chosen, m)
		}
	}
	if len(chosen) == 0 {
		return usage(fmt.Errorf("no mutant has a name that matches %q: -list lists them", *which))
	}
	if *list {
		for _, m := range chosen {
			fmt.Printf("%s\n\tbreaks: %s\n\tshown by: %s\n", m.Name, m.Breaks, m.Shown)
		}
		return 0
	}
	dir := *keep
	if dir == "" {
		if dir, err = os.MkdirTemp("", "kagzi-mutants-"); err != nil {
			return usage(err)
		}
		defer os.RemoveAll(dir)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	l := lab{dir: dir, out: os.Stdout, control: *control}
	return l.all(ctx, chosen)
}

func usage(err error) int {
	fmt.Fprintln(os.Stderr, "mutants:", err)
	return 2
}

// header is the begin of the table.
const header = "| mutant | breaks | outcome |\n|---|---|---|"

// all tries the mutants one after the other, and returns the exit code.
func (l *lab) all(ctx context.Context, mutants []Mutant) (code int) {
	fmt.Fprintln(l.out, header)
	played := map[string]bool{}
	for _, m := range mutants {
		o := l.row(ctx, m)
		if !o.good {
			code = 1
		}
		if o.killer == nil || !l.control || len(m.Edits) == 0 {
			continue
		}
		control := o.killer.control()
		if !played[control.Name] && !l.row(ctx, control).good {
			code = 1
		}
		played[control.Name] = true
	}
	if ctx.Err() != nil {
		return 2
	}
	return code
}

// row tries a mutant and prints its row.
func (l *lab) row(ctx context.Context, m Mutant) (o outcome) {
	if ctx.Err() != nil {
		return o
	}
	if o = l.try(ctx, m); ctx.Err() == nil {
		writeRow(l.out, m, o)
	}
	return o
}

func writeRow(w io.Writer, m Mutant, o outcome) {
	fmt.Fprintf(w, "| %s | %s | %s |\n", m.Name, m.Breaks, strings.ReplaceAll(o.text, "|", `\|`))
}

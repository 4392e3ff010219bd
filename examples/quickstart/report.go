package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/kagzi/kagzi"
)

// progress counts the checkouts by status.
type progress struct {
	completed, failed, sleeping, running, waiting int
	executions                                    int
}

func (p progress) String() string {
	const width = 20
	bar := strings.Repeat("█", p.completed*width/checkouts) + strings.Repeat("·", width-p.completed*width/checkouts)
	return fmt.Sprintf("%s %3d waiting  %3d running  %3d sleeping  %3d completed",
		bar, p.waiting, p.running, p.sleeping, p.completed)
}

func (s *show) progress(ctx context.Context) (p progress, err error) {
	runs, err := s.client.List(ctx, kagzi.RunFilter{Limit: checkouts + 1})
	if err != nil {
		return p, err
	}
	for _, r := range runs {
		switch r.Status {
		case kagzi.StatusCompleted:
			p.completed++
		case kagzi.StatusRunning:
			p.running++
		case kagzi.StatusSleeping:
			p.sleeping++
		case kagzi.StatusPending:
			p.waiting++
		default:
			p.failed++
		}
	}
	executions, err := s.executions()
	p.executions = len(executions)
	return p, err
}

// executions reads the journals. It ignores an incomplete line.
func (s *show) executions() ([]execution, error) {
	var all []execution
	for _, name := range workers {
		data, err := os.ReadFile(s.journal(name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		data = data[:strings.LastIndexByte(string(data), '\n')+1]
		for lines := bufio.NewScanner(strings.NewReader(string(data))); lines.Scan(); {
			e, err := parseExecution(lines.Text())
			if err != nil {
				return nil, err
			}
			all = append(all, e)
		}
	}
	return all, nil
}

// A tally has the numbers of the table at the end.
type tally struct {
	completed   int           // runs
	records     int           // of attempts of steps
	executions  int           // of attempts of steps
	repeated    int           // executions beyond the first of an attempt
	interrupted int           // executions that the kill interrupted, and that were repeated
	recovery    time.Duration // from the kill until the last of them was running again
	captured    int           // orders with exactly one row in the ledger
	broken      []string      // guarantees
}

// report compares the database with the journals, prints the table, and draws it if -svg is given.
func (s *show) report(ctx context.Context) error {
	v := &tally{}
	if err := s.checkRuns(ctx, v); err != nil {
		return err
	}
	if err := s.checkSteps(ctx, v); err != nil {
		return err
	}
	if err := s.checkLedger(ctx, v); err != nil {
		return err
	}
	fmt.Println()
	rows := s.rows(v)
	for _, r := range rows {
		fmt.Printf("  %-18s %10s   %s\n", r.name, r.found, r.remark)
	}
	fmt.Println()
	if len(v.broken) > 0 {
		return fmt.Errorf("%d promises were broken:\n  %s", len(v.broken), strings.Join(v.broken, "\n  "))
	}
	fmt.Println("Every promise was kept.")
	if *svg == "" {
		return nil
	}
	executions, err := s.executions()
	if err != nil {
		return err
	}
	return os.WriteFile(*svg, draw(s, executions, rows), 0o644)
}

// A row is a line of the table.
type row struct{ name, found, remark string }

func (s *show) rows(v *tally) []row {
	return []row{
		{"runs completed", fmt.Sprintf("%d of %d", v.completed, checkouts), ""},
		{"steps recorded", fmt.Sprint(v.records), "one record for each attempt"},
		{"steps executed", fmt.Sprint(v.executions), "counted by the workers themselves"},
		{"steps re-executed", fmt.Sprint(v.repeated), fmt.Sprintf("the kill had interrupted %d before their record",
			v.interrupted)},
		{"payments captured", fmt.Sprintf("%d of %d", v.captured, checkouts), "exactly once each"},
		{"time to recovery", v.recovery.Round(time.Millisecond).String(), "from the kill until the last interrupted " +
			"step ran again"},
		{"total time", s.finished.Sub(s.began).Round(time.Millisecond).String(), ""},
	}
}

func (v *tally) breach(format string, args ...any) {
	v.broken = append(v.broken, fmt.Sprintf(format, args...))
}

// checkRuns checks that no acknowledged start is lost, and that its run completes.
func (s *show) checkRuns(ctx context.Context, v *tally) error {
	for i, started := range s.runs {
		run, err := s.client.Get(ctx, started.ID)
		if err != nil {
			return err
		}
		if run.Status == kagzi.StatusCompleted {
			v.completed++
		} else {
			v.breach("order %d is %s: %s", i+1, run.Status, run.Error)
		}
	}
	return nil
}

// checkSteps checks that a step with a recorded result never executes again. The record has the note of its execution.
// There may be other executions of the same attempt that were interrupted before they were recorded, but the recorded
// one must be the last. The journals give the order: all workers are on this machine and have the same clock.
func (s *show) checkSteps(ctx context.Context, v *tally) error {
	executions, err := s.executions()
	if err != nil {
		return err
	}
	executed := map[step][]execution{}
	for _, e := range executions {
		executed[e.step] = append(executed[e.step], e)
	}
	v.executions = len(executions)
	for _, started := range s.runs {
		attempts, err := s.client.Steps(ctx, started.ID)
		if err != nil {
			return err
		}
		for _, a := range attempts {
			es := executed[step{started.ID, a.Step, a.Attempt}]
			delete(executed, step{started.ID, a.Step, a.Attempt})
			if a.Step == "cooling-off" {
				continue // a sleep
			}
			v.records++
			s.checkStep(v, a, es)
		}
	}
	for at := range executed {
		v.breach("%s of run %s was executed and has no record", at.name, at.run)
	}
	if v.interrupted == 0 {
		v.breach("nothing was proved: the kill found no step under way")
	}
	return nil
}

func (s *show) checkStep(v *tally, a kagzi.StepAttempt, executions []execution) {
	var recorded *execution
	for i, e := range executions {
		if strings.Contains(string(a.Output), `"`+e.note+`"`) || strings.HasSuffix(a.Error, " "+e.note) {
			recorded = &executions[i]
		}
	}
	if recorded == nil {
		v.breach("the record of %s, attempt %d, is from no execution: %s%s", a.Step, a.Attempt, a.Output, a.Error)
		return
	}
	v.repeated += len(executions) - 1
	for _, e := range executions {
		switch {
		case e == *recorded:
		case e.at.After(recorded.at):
			v.breach("%s, attempt %d, was recorded by %s and executed again by %s", a.Step, a.Attempt,
				recorded.note, e.note)
		case e.worker == s.victim:
			v.interrupted++
			v.recovery = max(v.recovery, recorded.at.Sub(s.killed))
		}
	}
}

// checkLedger checks that a transactional step takes effect exactly once.
func (s *show) checkLedger(ctx context.Context, v *tally) error {
	rows, err := s.pool.Query(ctx, `
		SELECT o.number, count(l.order_number)
		FROM generate_series(1, $2::int) AS o (number)
		LEFT JOIN kagzi_quickstart_ledger l ON l.shop = $1 AND l.order_number = o.number
		GROUP BY 1`, s.shop, checkouts)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var order, captured int
		if err := rows.Scan(&order, &captured); err != nil {
			return err
		}
		if captured == 1 {
			v.captured++
		} else {
			v.breach("order %d has %d rows in the ledger", order, captured)
		}
	}
	return rows.Err()
}

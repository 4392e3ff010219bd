package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// describe returns lines about the machine and the programs.
func (l *lab) describe(ctx context.Context) ([]string, error) {
	var postgres, settings string
	err := l.admin.QueryRow(ctx, `
		SELECT current_setting('server_version'),
			(SELECT string_agg(name || ' = ' || current_setting(name), ', ' ORDER BY name) FROM pg_settings
			WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes', 'shared_buffers',
				'max_wal_size'))`).Scan(&postgres, &settings)
	memory := proc("meminfo", `MemTotal:\s+(\d+) kB`)
	return []string{
		"Date: " + time.Now().UTC().Format(time.DateOnly),
		fmt.Sprintf("Machine: %s, %d processors, %.0f GB of memory; Postgres and the engines share it",
			proc("cpuinfo", `model name\s*: (.*)`), runtime.NumCPU(), number(memory)/1e6),
		"Postgres " + postgres + ": " + settings,
		runtime.Version() + ", River " + moduleVersion("github.com/riverqueue/river") +
			", DBOS " + moduleVersion("github.com/dbos-inc/dbos-transact-golang") +
			", go-workflows " + moduleVersion("github.com/cschleiden/go-workflows") +
			", Temporal's SDK " + moduleVersion("go.temporal.io/sdk"),
	}, err
}

func proc(file, pattern string) string {
	text, _ := os.ReadFile("/proc/" + file)
	if found := regexp.MustCompile(pattern).FindSubmatch(text); found != nil {
		return string(found[1])
	}
	return "unknown"
}

// write writes the report into the folder, or the tables to the standard output.
func write(folder string, about []string, all []outcome) error {
	if folder == "" {
		writeTables(os.Stdout, about, all, false)
		return nil
	}
	file, err := os.Create(filepath.Join(folder, "RESULTS.md"))
	if err != nil {
		return err
	}
	writeTables(file, about, all, true)
	if err := file.Close(); err != nil {
		return err
	}
	for _, g := range groups(all) {
		if err := os.WriteFile(filepath.Join(folder, plotName(g[0].figure.group)), plot(g), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// groups returns the outcomes of each group.
func groups(all []outcome) (g [][]outcome) {
	for i, o := range all {
		if i == 0 || all[i-1].figure.group != o.figure.group {
			g = append(g, nil)
		}
		g[len(g)-1] = append(g[len(g)-1], o)
	}
	return g
}

func plotName(group string) string {
	return strings.Trim(regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(group), "-"), "-") + ".svg"
}

func writeTables(w io.Writer, about []string, all []outcome, plots bool) {
	fmt.Fprintf(w, "# Results of the benchmark\n\n")
	for _, line := range about {
		fmt.Fprintf(w, "- %s\n", line)
	}
	fmt.Fprintf(w, "\nREADME.md explains the columns. Values are medians, with the smallest and the largest of the "+
		"rounds in parentheses.\n")
	for _, g := range groups(all) {
		columns := g[0].figure.valueColumns()
		head := slices.Concat([]string{"figure", "engine"}, columns, []string{
			"to River, tuned", "server, CPU s/1,000", "client, CPU s/1,000", "statements/run", "commits/run",
			"WAL, bytes/run", "rounds (thrown away)",
		})
		fmt.Fprintf(w, "\n## %s\n\n", g[0].figure.group)
		if plots {
			fmt.Fprintf(w, "![%s](%s)\n\n", g[0].figure.group, plotName(g[0].figure.group))
		}
		fmt.Fprintf(w, "| %s |\n|%s\n", strings.Join(head, " | "), strings.Repeat("---|", len(head)))
		for _, o := range g {
			fmt.Fprintf(w, "| %s |\n", strings.Join(o.row(len(columns), g), " | "))
		}
		for _, o := range g {
			o.writeCurve(w)
		}
	}
}

// valueColumns are the names of the values.
func (f figure) valueColumns() []string {
	if f.columns != nil {
		return f.columns
	}
	return []string{"runs/s"}
}

// row returns the cells of an outcome. The others of its group are for the ratio.
func (o outcome) row(columns int, group []outcome) []string {
	cells := []string{o.figure.name, o.subject}
	for i := range columns {
		cells = append(cells, spread(o.values(i)))
	}
	ratio := "–"
	for _, other := range group {
		if other.figure.name == o.figure.name && other.subject == riverTuned.name() {
			if r := median(o.values(0)) / median(other.values(0)); !math.IsNaN(r) && !math.IsInf(r, 0) {
				ratio = fmt.Sprintf("%.2f", r)
			}
		}
	}
	per := func(scale float64, of func(cost) float64) string {
		var values []float64
		for _, s := range o.samples {
			if s.cost.Runs > 0 {
				values = append(values, of(s.cost)/float64(s.cost.Runs)*scale)
			}
		}
		return short(median(values))
	}
	rounds := fmt.Sprintf("%d (%d)", len(o.samples), o.thrown)
	if o.noisy > 0 {
		rounds += fmt.Sprintf(", %d of them disturbed", o.noisy)
	}
	return append(cells, ratio,
		per(1000, func(c cost) float64 { return c.Server }), per(1000, func(c cost) float64 { return c.Client }),
		per(1, func(c cost) float64 { return float64(c.Statements) }),
		per(1, func(c cost) float64 { return float64(c.Commits) }),
		per(1, func(c cost) float64 { return float64(c.WAL) }), rounds)
}

// writeCurve writes the points of the last round.
func (o outcome) writeCurve(w io.Writer) {
	if len(o.samples) == 0 || o.samples[len(o.samples)-1].curve == nil {
		return
	}
	fmt.Fprintf(w, "\n%s, seconds: milliseconds of a claim:", o.subject)
	for _, p := range o.samples[len(o.samples)-1].curve {
		fmt.Fprintf(w, " %.0f: %s,", p.x, short(p.y))
	}
	fmt.Fprintln(w)
}

// values returns the i-th value of each round.
func (o outcome) values(i int) (v []float64) {
	for _, s := range o.samples {
		v = append(v, s.values[i])
	}
	return v
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return nan
	}
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

func spread(v []float64) string {
	m := median(v)
	if math.IsNaN(m) || len(v) == 1 {
		return short(m)
	}
	return fmt.Sprintf("%s (%s–%s)", short(m), short(slices.Min(v)), short(slices.Max(v)))
}

// short returns f with three significant digits.
func short(f float64) string {
	switch a := math.Abs(f); {
	case math.IsNaN(f):
		return "–"
	case a >= 100:
		digits := fmt.Sprintf("%.0f", f)
		for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
			digits = digits[:i] + "," + digits[i:]
		}
		return digits
	case a >= 10:
		return fmt.Sprintf("%.1f", f)
	case a >= 1:
		return fmt.Sprintf("%.2f", f)
	}
	return strings.TrimPrefix(fmt.Sprintf("%.3f", f), "-") // below zero only by rounding
}

// moduleVersion returns the version of a module that this program was built with.
func moduleVersion(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "of an unknown version"
	}
	for _, m := range info.Deps {
		if m.Path == path {
			return m.Version
		}
	}
	return "of an unknown version"
}

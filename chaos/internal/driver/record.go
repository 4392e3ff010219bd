package driver

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/kagzi/kagzi/chaos/internal/check"
)

// A Record of a round is kept.
type Record struct {
	Seed     uint64         `json:"seed"`
	Flags    string         `json:"flags"` // the others that matter, to play the round again
	Server   string         `json:"server"`
	Verdict  Verdict        `json:"verdict"`
	Seconds  float64        `json:"seconds"`
	Faults   map[string]int `json:"faults"`         // by name: how many had an effect
	Idle     []string       `json:"idle,omitempty"` // faults that had none
	Pairs    []string       `json:"pairs"`          // of kinds that met
	Figures  check.Figures  `json:"figures"`
	Broken   []string       `json:"broken,omitempty"` // invariants
	Reasons  []string       `json:"reasons,omitempty"`
	Calls    int            `json:"calls"`
	Unknown  int            `json:"unknown"` // of them, with an unknown outcome
	Duration time.Duration  `json:"duration"`
}

// Append adds a record to a file, one line each.
func (r Record) Append(file string) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	return cmp.Or(err, f.Close())
}

// Summarize reads records and writes what they say together, as Markdown.
func Summarize(w io.Writer, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	var all []Record
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var r Record
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return fmt.Errorf("line %d of %s is no record of a round: %w", len(all)+1, file, err)
		}
		all = append(all, r)
	}
	if err := lines.Err(); err != nil {
		return err
	}
	if len(all) == 0 {
		return fmt.Errorf("%s has no records: -record adds them", file)
	}
	summarize(w, all)
	return nil
}

func summarize(w io.Writer, all []Record) {
	verdicts, faults, idle, pairs := map[string]int{}, map[string]int{}, map[string]int{}, map[string]int{}
	var sum check.Figures
	var seconds float64
	var calls, unknown int
	var broken, seeds []string
	for _, r := range all {
		verdicts[string(r.Verdict)]++
		seconds += r.Seconds
		calls, unknown = calls+r.Calls, unknown+r.Unknown
		seeds = append(seeds, fmt.Sprint(r.Seed))
		for _, b := range r.Broken {
			broken = append(broken, fmt.Sprintf("%s (seed %d)", b, r.Seed))
		}
		for name, n := range r.Faults {
			faults[name] += n
		}
		for _, name := range r.Idle {
			idle[name]++
		}
		if r.Verdict == Pass {
			for _, p := range r.Pairs {
				pairs[p]++
			}
		}
		f := r.Figures
		sum.Runs, sum.Steps, sum.Executions, sum.Repeated = sum.Runs+f.Runs, sum.Steps+f.Steps, sum.Executions+
			f.Executions, sum.Repeated+f.Repeated
		sum.Refused, sum.Claims, sum.TakenOver = sum.Refused+f.Refused, sum.Claims+f.Claims, sum.TakenOver+f.TakenOver
		sum.Ended, sum.Judged, sum.Watched = sum.Ended+f.Ended, sum.Judged+f.Judged, sum.Watched+f.Watched
		sum.HealedToEnd = max(sum.HealedToEnd, f.HealedToEnd)
		sum.KillToClaim, sum.DueToClaim = append(sum.KillToClaim, f.KillToClaim...),
			append(sum.DueToClaim, f.DueToClaim...)
	}
	slices.Sort(sum.KillToClaim)
	slices.Sort(sum.DueToClaim)
	fmt.Fprintf(w, "%d rounds in %v: %s. %d calls of clients, %d of them with an unknown outcome.\n\n%s\n", len(all),
		time.Duration(seconds*float64(time.Second)).Round(time.Second), count(verdicts), calls, unknown, sum)
	fmt.Fprintf(w, "Seeds: %s.\n\nBroken: %s.\n\n", strings.Join(seeds, " "),
		cmp.Or(strings.Join(broken, ", "), "none"))
	table(w, "fault", faults)
	table(w, "fault without an effect, or hidden by another one", idle)
	table(w, "pair of faults that met in a passing round", pairs)
}

// count returns "3 FAIL, 90 PASS".
func count(verdicts map[string]int) string {
	var all []string
	for _, v := range slices.Sorted(maps.Keys(verdicts)) {
		all = append(all, fmt.Sprint(verdicts[v], " ", v))
	}
	return strings.Join(all, ", ")
}

func table(w io.Writer, what string, counts map[string]int) {
	if len(counts) == 0 {
		return
	}
	fmt.Fprintf(w, "| %s | times |\n|---|---|\n", what)
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(w, "| %s | %d |\n", name, counts[name])
	}
	fmt.Fprintln(w)
}

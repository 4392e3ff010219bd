package flow

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
	"github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/internal/explain"
)

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func ofMost(n, most int) string {
	if most == 0 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%d/%d", n, most)
}

// rateText writes a rate in the form that parseRate reads.
func rateText(r admin.Rate) string {
	if r.Starts == 0 {
		return "-"
	}
	return explain.Rate(r, screen.Short)
}

func keyLimitsText(l admin.KeyLimits) string {
	var parts []string
	if l.MaxRunning > 0 {
		parts = append(parts, fmt.Sprintf("at most %d running", l.MaxRunning))
	}
	if l.Rate.Starts > 0 {
		parts = append(parts, rateText(l.Rate))
	}
	if l.Weight > 0 {
		parts = append(parts, fmt.Sprintf("weight %d", l.Weight))
	}
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, ", ")
}

// setHelp is how the commands that set limits treat those that exist.
const setHelp = `Limits that no flag names stay as they are; 0 removes one, and --clear removes all first. ` +
	"Runs under way go on."

// rateFlags are a rate and its burst.
type rateFlags struct {
	rate  string
	burst int
}

func (r *rateFlags) flags(fs *pflag.FlagSet, prefix, what string) {
	fs.StringVar(&r.rate, prefix+"rate", "", "how often "+what+" may start, as `RATE`: 10/s, 600/m, 5/10s; 0 means "+
		"any number")
	fs.IntVar(&r.burst, prefix+"burst", 0, "how many may start at once after a time with fewer, as `N`")
}

// over returns the rate that the flags make of one.
func (r *rateFlags) over(fs *pflag.FlagSet, prefix string, old admin.Rate) (admin.Rate, error) {
	if fs.Changed(prefix + "rate") {
		rate, err := parseRate(prefix+"rate", r.rate)
		if err != nil {
			return old, err
		}
		rate.Burst = old.Burst
		if rate.Starts == 0 {
			rate = admin.Rate{}
		}
		old = rate
	}
	if fs.Changed(prefix + "burst") {
		if old.Starts == 0 {
			return old, command.Usagef("--%sburst needs a rate: give --%[1]srate, too", prefix)
		}
		old.Burst = r.burst
	}
	return old, nil
}

func anyNumber(n int) string {
	if n == 0 {
		return "any number"
	}
	return "at most " + strconv.Itoa(n)
}

// needsChange refuses a command that sets nothing.
func needsChange(fs *pflag.FlagSet) error {
	n := 0
	fs.Visit(func(f *pflag.Flag) {
		if fs.Lookup(f.Name) != nil && !slices.Contains([]string{
			"json", "no-color", "namespace", "database-url",
			"timeout", "queue", "reason", "actor",
		}, f.Name) {
			n++
		}
	})
	if n == 0 {
		return command.Usagef("there is nothing to set: give a limit such as --max-running 10, or --clear")
	}
	return nil
}

// parseRate reads a rate: "10/s", "600/m", "5/10s". "0" is no rate.
func parseRate(flag, s string) (admin.Rate, error) {
	bad := command.Usagef("--%s is %q: write it as 10/s, 600/m or 5/10s; 0 means no rate", flag, s)
	if s == "0" {
		return admin.Rate{}, nil
	}
	count, per, ok := strings.Cut(s, "/")
	n, err := strconv.Atoi(strings.TrimSpace(count))
	if !ok || err != nil || n < 1 {
		return admin.Rate{}, bad
	}
	if per = strings.TrimSpace(per); per != "" && (per[0] < '0' || per[0] > '9') {
		per = "1" + per
	}
	d, err := duration.Parse(per)
	if err != nil || d <= 0 {
		return admin.Rate{}, bad
	}
	return admin.Rate{Starts: n, Per: d}, nil
}

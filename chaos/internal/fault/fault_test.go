package fault_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi/chaos/internal/fault"
	"github.com/kagzi/kagzi/internal/campaign"
)

// Each fault has an effect, and leaves everything as it was, also if its context ends.
func TestFaults(t *testing.T) {
	t.Parallel()
	all, _ := fault.ServerKinds()
	for _, f := range campaign.Some(fault.All(), 8) {
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			w, _ := newWorld(t, all[0]) // the plain one
			w.play(f)
		})
	}
}

// The faults that a kind of server adds, and one that each has, too, on all kinds that this machine allows.
func TestServerKinds(t *testing.T) {
	t.Parallel()
	all, missing := fault.ServerKinds()
	t.Logf("this machine does not allow %v", missing)
	for _, g := range campaign.Some(all[1:], 2) {
		t.Run(g.Name, func(t *testing.T) {
			t.Parallel()
			w, site := newWorld(t, g)
			if site.Both {
				w.route(site.Admin)
			}
			played := 0
			for _, f := range site.Faults {
				common := slices.ContainsFunc(fault.All(), func(g fault.Fault) bool { return g.Name == f.Name })
				if common && f.Name != "F6 immediate restart" {
					continue
				}
				played++
				t.Run(f.Name, func(t *testing.T) {
					w.t = t
					w.play(f)
				})
			}
			if w.t = t; played < 2 {
				t.Error("it adds no fault")
			}
			losses := w.Losses()
			if site.Losing != (len(losses) > 0) {
				t.Errorf("losing is %v, and there are the losses %+v", site.Losing, losses)
			}
			for _, l := range losses {
				if l.To <= l.From {
					t.Errorf("loss %+v", l)
				}
			}
		})
	}
}

// play injects the fault, once to its end, and once until its context ends.
func (w *world) play(f fault.Fault) {
	t := w.t
	t.Helper()
	before := w.snapshot()
	r := rand.New(rand.NewPCG(7, uint64(len(f.Name))))
	begun := time.Now()
	effect, note, err := f.Inject(t.Context(), w.World, r, 500*time.Millisecond)
	t.Logf("%.1f s, effect %d: %s", time.Since(begun).Seconds(), effect, note)
	if err != nil || effect == 0 {
		t.Fatalf("effect %d, %v%s", effect, err, w.logs())
	}
	w.wantHealed(before)

	ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
	defer cancel()
	effect, note, err = f.Inject(ctx, w.World, r, time.Minute)
	var broken *fault.Violation
	if errors.As(err, &broken) {
		t.Error(err)
	}
	t.Logf("cut short: effect %d: %s (%v)", effect, note, err)
	w.wantHealed(before)
}

func (w *world) wantHealed(before string) {
	w.t.Helper()
	if after := w.snapshot(); after != before {
		w.t.Fatalf("before:\n%s\nafter:\n%s", before, after)
	}
	w.wantProgress()
}

// The faults kill workers at all points that a worker has.
func TestPoints(t *testing.T) {
	t.Parallel()
	var all []string
	for _, room := range []string{"worker", "replay", "limits"} {
		for _, text := range sources(t, "../../../internal/"+room) {
			for _, m := range regexp.MustCompile(`\.Failpoint\("([^"]+)"`).FindAllStringSubmatch(text, -1) {
				all = append(all, m[1])
			}
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	if mine := slices.Sorted(slices.Values(fault.Points)); !slices.Equal(mine, all) {
		t.Errorf("a worker has the points %q, the faults know %q", all, mine)
	}
}

// Each statement that faults look for is exactly one of Kagzi's.
func TestStatements(t *testing.T) {
	t.Parallel()
	text := strings.Join(sources(t, "../../../store"), "\n")
	for name, part := range fault.Statements() {
		if n := strings.Count(text, part); n != 1 {
			t.Errorf("%s: %q is in the code of the store %d times", name, part, n)
		}
	}
}

// sources returns the files of a package without its tests.
func sources(t *testing.T, dir string) (all []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(paths) == 0 {
		t.Fatal(err, paths)
	}
	for _, p := range paths {
		if !strings.HasSuffix(p, "_test.go") {
			b, err := os.ReadFile(p)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, string(b))
		}
	}
	return all
}

package driver

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi/chaos/internal/evidence"
	"github.com/kagzi/kagzi/chaos/internal/fault"
)

// Who names a fault or a kind of server that does not exist is told which ones do.
func TestUnknownNames(t *testing.T) {
	t.Parallel()
	faults := []fault.Fault{{Name: "F1 kill"}, {Name: "F2 freeze"}, {Name: "F1 kill"}}
	_, err := Make(Options{Duration: time.Minute, Faults: regexp.MustCompile("thunder")}, faults)
	if err == nil || !strings.HasSuffix(err.Error(), "\"plain\" has a name that matches `thunder`. Its faults "+
		"are:\n\tF1 kill\n\tF2 freeze") {
		t.Errorf("-faults: %v", err)
	}
	_, err = Options{Server: "moon"}.server()
	if err == nil ||
		!strings.Contains(err.Error(),
			`there is no kind of server "moon": this machine allows "plain", "synchronous standby"`) ||
		!strings.HasSuffix(err.Error(), `, and "any"`) {
		t.Errorf("-server: %v", err)
	}
}

// A plan that is too short for a fault says so.
func TestPlanWithoutFaults(t *testing.T) {
	t.Parallel()
	for duration, want := range map[time.Duration]bool{5 * time.Second: true, 10 * time.Second: false} {
		p, err := Make(Options{Duration: duration}, []fault.Fault{{Name: "F1 kill"}})
		if err != nil || strings.Contains(p.String(), "no faults") != want {
			t.Errorf("%v: %v\n%v", duration, err, p)
		}
	}
}

// While the server is away, only faults of worker processes meet that, and they do. A fault that wants to be alone is.
func TestFaultsThatMeet(t *testing.T) {
	t.Parallel()
	all := []fault.Fault{
		{Name: "away", Away: true},
		{Name: "alone", Alone: true},
		{Name: "local", Local: true},
		{Name: "remote"},
	}
	met := map[string]bool{}
	for seed := range uint64(200) {
		p, err := Make(Options{Seed: seed, Duration: time.Minute}, all)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range p.Clash {
			for i, a := range c.Faults {
				for j, b := range c.Faults {
					if i != j {
						met[a.Fault.Name+" and "+b.Fault.Name] = true
					}
				}
			}
		}
	}
	for pair, may := range map[string]bool{
		"away and local": true, "remote and local": true, "remote and remote": true,
		"away and remote": false, "away and away": false, "alone and local": false, "alone and away": false,
		"alone and alone": false,
	} {
		if met[pair] != may {
			t.Errorf("%s met: %t", pair, met[pair])
		}
	}
}

func TestFlagsOfARecord(t *testing.T) {
	t.Parallel()
	o := Options{
		Seed: 7, Duration: time.Minute, Workers: 4, Customers: 40, Deaf: true,
		Faults: regexp.MustCompile("F2 |F11"),
	}
	if got, want := o.flags(),
		`-server "plain" -duration 1m0s -workers 4 -customers 40 -deaf -faults "F2 |F11"`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestReported(t *testing.T) {
	t.Parallel()
	for want, v := range map[string]evidence.Injected{
		"   4.9s F1 kill, 1.5 s long: 2 effects; workers 1.1; 2.1": {Effect: 2, Note: "workers 1.1; 2.1; "},
		"   4.9s F1 kill, 1.5 s long: 1 effect":                    {Effect: 1},
		"   4.9s F1 kill, 1.5 s long: no effect; too late":         {Err: "too late"},
	} {
		v.Fault, v.Ended = "F1 kill", 1500*time.Millisecond
		if got := reported(4900*time.Millisecond, v); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

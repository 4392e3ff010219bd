package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/kagzi/kagzi/chaos/internal/driver"
	"github.com/kagzi/kagzi/chaos/internal/fleet"
	"github.com/kagzi/kagzi/chaos/internal/worker"
	"github.com/kagzi/kagzi/internal/campaign"
)

// TestMain makes the test binary a worker process, as main does.
func TestMain(m *testing.M) {
	if spec := os.Getenv(fleet.Env); spec != "" {
		os.Exit(worker.Main(spec))
	}
	os.Exit(m.Run())
}

// rounds are played in a long campaign, and the first of them always. A round of 30 s has a calm, in which liveness is
// judged.
var rounds = []struct {
	seed   uint64
	server string
	length time.Duration
	found  string
}{
	{3, "plain", 15 * time.Second, "a branch that ignored the error of a step that had ended its goroutine was taken " +
		"for other code in a replay"},
	{9, "plain", 30 * time.Second, "nothing"},
	{31, "databases", 30 * time.Second, "nothing"},
}

// TestRounds plays short rounds, one after the other. KAGZI_CHAOS_SEEDS is how many rounds with fresh seeds come after
// those of the table. A round that proves nothing, because the machine is too busy for the plan, is played again with
// another seed.
func TestRounds(t *testing.T) {
	fresh := 0
	if n, err := strconv.Atoi(os.Getenv("KAGZI_CHAOS_SEEDS")); err == nil {
		fresh = n
	}
	for _, r := range campaign.Some(rounds, 1) {
		t.Run(fmt.Sprint(r.seed), func(t *testing.T) { play(t, r.seed, r.server, r.length) })
	}
	for i := range fresh {
		seed := uint64(time.Now().UnixNano()%1_000_000) + uint64(i)
		t.Run("fresh", func(t *testing.T) { play(t, seed, "plain", 15*time.Second) })
	}
}

// tries is how many rounds may prove nothing.
const tries = 3

func play(t *testing.T, seed uint64, server string, length time.Duration) {
	for try := range uint64(tries) {
		o := driver.Options{
			Seed: seed + 1000*try, Server: server, Duration: length, Workers: 3, Customers: 20, Dir: t.TempDir(),
			Log: t.Logf,
		}
		var said bytes.Buffer
		record, err := driver.Play(t.Context(), &said, o, false)
		t.Logf("%s", said.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		switch record.Verdict {
		case driver.Pass:
			return
		case driver.Fail:
			t.Fatalf("seed %d", o.Seed)
		}
	}
	t.Errorf("INVALID: none of %d rounds proved anything", tries)
}

//go:build unix

package crash_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/testhook"
)

var paying = kagzi.Define[int, string]("paying")

// provider is the file in which the provider writes down what it was paid. It knows no idempotency keys.
func (l workload) provider() string {
	return filepath.Join(filepath.Dir(l.led.file.Name()), "provider")
}

// paying pays the provider once, and asks it what it was paid if a call is in doubt.
func (l workload) paying(ctx kagzi.Context, n int) (string, error) {
	lease := ctx.(testhook.Branch).Lease()
	receipt := kit.Link(strconv.Itoa(n), "pay")
	h, err := kagzi.Step(ctx, "pay", func(ctx context.Context) (string, error) {
		defer l.begin(ctx, lease)()
		l.reach("during step")
		provider, err := openLedger(l.provider())
		if err != nil {
			return "", kagzi.Permanent(err)
		}
		provider.write("PAID", n)
		return receipt, provider.file.Close()
	}, kagzi.AtMostOnce(), kagzi.Reconcile(func(context.Context) (string, bool, error) {
		lines, err := readLedger(l.provider())
		for _, line := range lines {
			if line[1] == strconv.Itoa(n) {
				return receipt, true, nil
			}
		}
		return "", false, err
	}))
	if err != nil {
		return "", err
	}
	return l.tx(ctx, "ledger", h)
}

// TestAKilledWorkerNeverPaysTwice kills a worker process around the call of a provider that does not recognize a
// repeated payment: each run pays it once.
func TestAKilledWorkerNeverPaysTwice(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"after intent", "during step", "after step", "before flush", "after flush"} {
		for nth := 1; nth <= 2; nth++ {
			t.Run(fmt.Sprint(strings.ReplaceAll(point, " ", "-"), nth), func(t *testing.T) {
				t.Parallel()
				kit.WaitTurn(t)
				k := newKilling(t, point, nth, paying)
				k.want = func(n int) string { return kit.Link(kit.Link(strconv.Itoa(n), "pay"), "ledger") }
				if err := k.run(); err != nil {
					t.Error(err)
				}
				for n := range k.runs {
					file := filepath.Join(filepath.Dir(k.files[0]), "provider")
					if paid := countIn(t, file, "PAID", strconv.Itoa(n)); paid != 1 {
						t.Errorf("run %d has paid %d times", n, paid)
					}
				}
			})
		}
	}
}

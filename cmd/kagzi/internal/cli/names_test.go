package cli_test

import (
	"strings"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
)

func TestMisspeltNamesAreWarnedOf(t *testing.T) {
	k, s := newShell(t)
	serveCheckout(k, always)
	kit.FailureOf(k, kit.Begin(k, checkout, 1, kagzi.ID("order-1")), kagzi.StatusFailed)
	const (
		none      = "No run matches."
		workflow  = `No run and no live worker has the workflow "chekout": do you mean "checkout"?`
		queue     = `No run and no live worker has the queue "defualt": do you mean "default"?`
		namespace = `The namespace "prd" has no run, no worker and no schedule: is it the right one?`
	)
	for _, test := range []struct{ command, says string }{
		{"stuck", ""},
		{"runs list --until 1d", none},
		{"runs list --kind timeout", none},
		{"runs list --workflow checkout --status pending", none},
		{"workers list --queue default --status offline", "No worker matches."},
		{"runs list --workflow chekout", none + " " + workflow},
		{"runs list --workflow chekout --json", workflow},
		{"runs count --workflow chekout", none + " " + workflow},
		{"runs cancel --workflow chekout --yes", workflow + " " + none},
		{"runs cancel --workflow chekout --dry-run --json", workflow},
		{"workers list --workflow chekout", "No worker matches. " + workflow},
		{"runs list --queue defualt", none + " " + queue},
		{"keys list --queue defualt", "No key matches. " + queue},
		{"runs list --kind unavailabel", none +
			` No run has failed with the kind "unavailabel": do you mean "unavailable"?`},
		{"runs list --schedule nightly", none + ` There is no schedule "nightly".`},
		{"runs list --waiting-on sgnal", none + ` No run waits for "sgnal": do you mean "signal"?`},
		{"runs list --waiting-on signal", none},
		{"runs list --namespace prd", none + " " + namespace},
		{"stuck --namespace prd", namespace},
		{"health --namespace prd", namespace},
		{"stats --namespace prd --json", namespace},
		{"schedules list --namespace prd", "There are no schedules. " + namespace},
		{"schedules list", "There are no schedules."},
		{"schedules list --workflow chekout", "No schedule matches. " + workflow},
		{"schedules list --workflow checkout", "No schedule matches."},
		{"schedules next --workflow chekout --until 2099-01-01T00:00:00Z", "No schedule has a tick until " +
			"2099-01-01T00:00:00Z. " + workflow},
		{"schedules next --namespace prd --until 2099-01-01T00:00:00Z", "No schedule has a tick until " +
			"2099-01-01T00:00:00Z. " + namespace},
		{"queues list --namespace prd", "No queue has limits: kagzi queues set gives it some. " + namespace},
		{"queues set defualt --max-running 1", queue},
		{"queues set default --max-running 1", ""},
		{"drain --queue defualt --yes", queue},
		{"pause --workflow chekout", workflow},
		{"pause --queue elsewhere", `No run and no live worker has the queue "elsewhere".`},
		{"runs start checkout --input 2", ""},
		{"runs start checkout --namespace prd", namespace},
		{"runs start chekout", workflow},
		{"runs start checkout --queue defualt --json", queue},
	} {
		r := s.run(test.command).ok()
		if text := strings.Join(strings.Fields(r.err), " "); text != test.says {
			t.Errorf("kagzi %s says %q, want %q", test.command, text, test.says)
		}
		if strings.Contains(test.command, "--json") && !strings.HasPrefix(r.out, "[") &&
			!strings.HasPrefix(r.out, "{") {
			t.Errorf("kagzi %s prints %q", test.command, r.out)
		}
	}
}

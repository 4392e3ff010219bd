package load

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/testhook"

	"github.com/kagzi/kagzi/chaos/internal/evidence"
)

// The workflows whose starts share a run.
var (
	Collected = kagzi.Define[[]string, string]("collected", kagzi.Queue("plain"),
		kagzi.Batch{Most: 5, Within: 300 * time.Millisecond})
	Settled = kagzi.Define[string, string]("settled", kagzi.Queue("plain"))
)

// Joins says how a customer's job begins, if it shares its run with other starts: "batch", "debounce", or empty.
func Joins(job Job) (how, key string) {
	r := job.random("joins")
	switch n := r.IntN(100); {
	case job.Kind != "":
	case n < 8:
		return "batch", fmt.Sprint("batch ", r.IntN(2))
	case n < 13:
		return "debounce", fmt.Sprint("debounce ", r.IntN(3))
	}
	return "", ""
}

// Item is what a job adds to a batch, or the input of a debounced start.
func Item(job Job) string { return fmt.Sprint("item ", job.N) }

// CollectedResult is what a batch of these items returns, and SettledResult what a debounced run returns.
func CollectedResult(items []string) string { return Link("", strings.Join(items, "\n")) }

// SettledResult is what a debounced run with this input returns.
func SettledResult(in string) string { return Link("settled", in) }

// collect deals with each item of a batch once, in a transaction.
func (h *Handler) collect(ctx kagzi.Context, items []string) (string, error) {
	x := execution{Handler: h}
	lease := ctx.(testhook.Branch).Lease()
	return kagzi.StepTx(ctx, "collect", func(ctx context.Context, tx pgx.Tx) (string, error) {
		end := x.begin(ctx, lease)
		x.Reach("during tx")
		for _, item := range items {
			if _, err := tx.Exec(ctx, `INSERT INTO chaos.items (item, run_id) VALUES ($1, $2)`, item,
				string(kagzi.CurrentStep(ctx).Run)); err != nil {
				end(evidence.Fail, err.Error())
				return "", err
			}
		}
		result := CollectedResult(items)
		end(evidence.End, result)
		return result, nil
	}, again)
}

func (h *Handler) settle(ctx kagzi.Context, in string) (string, error) {
	v, err := execution{Handler: h}.step(ctx, Op{Kind: opStep, Name: "settle"}, in)
	return SettledResult(in), cmp.Or(err, checkLink(v, Link(in, "settle")))
}

func checkLink(got, want string) error {
	if got != want {
		return fmt.Errorf("a step returned %q instead of %q", got, want)
	}
	return nil
}

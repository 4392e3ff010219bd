package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/kind"
)

// Workflows whose runs have histories worth looking at.
var (
	Fulfil = kagzi.Define[Order, string]("fulfil", kagzi.Queue("office"))
	Crawl  = kagzi.Define[int, int]("crawl", kagzi.Queue("office"))
	Trial  = kagzi.Define[string, string]("trial", kagzi.Queue("office"))
)

var soon = kagzi.RetryPolicy{MaxAttempts: 3, Backoff: 150 * time.Millisecond}

// handleHistories gives the worker the code of these workflows.
func handleHistories(w *kagzi.Worker) {
	kagzi.Handle(w, Fulfil, fulfil)
	kagzi.Handle(w, Crawl, func(ctx kagzi.Context, pages int) (int, error) {
		return kagzi.Step(ctx, "list pages", func(context.Context) (int, error) { return pages, nil })
	})
	kagzi.Handle(w, Trial, func(ctx kagzi.Context, customer string) (string, error) {
		if err := kagzi.Do(ctx, "welcome", work(300*time.Millisecond)); err != nil {
			return "", err
		}
		if err := kagzi.Sleep(ctx, "three months", 90*24*time.Hour); err != nil {
			return "", err
		}
		if err := kagzi.Do(ctx, "charge", flaky(1, 250*time.Millisecond), soon); err != nil {
			return "", err
		}
		return customer + " pays", kagzi.Do(ctx, "thank", work(100*time.Millisecond))
	})
}

// work takes some time.
func work(d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// flaky fails some times, and then works.
func flaky(failures int, d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := work(d)(ctx); err != nil {
			return err
		}
		if info := kagzi.CurrentStep(ctx); info.Attempt <= failures {
			return fmt.Errorf("carrier answered 503 to attempt %d\n%s: %w", info.Attempt,
				strings.Repeat("  at carrier.Book (carrier.go:42)\n", 3), kind.Unavailable)
		}
		return nil
	}
}

// fulfil has branches with retries, a repeated step, a map, a child and a race that is lost.
func fulfil(ctx kagzi.Context, o Order) (string, error) {
	parcel, err := kagzi.Step(ctx, "pack", func(ctx context.Context) (map[string]any, error) {
		return map[string]any{"order": o.ID, "boxes": []int{2, 3, 5}, "fragile": true},
			work(120 * time.Millisecond)(ctx)
	}, kagzi.Input(o))
	if err != nil {
		return "", err
	}
	err = kagzi.Parallel(ctx, "parts", map[string]func(kagzi.Context) error{
		"label": func(ctx kagzi.Context) error {
			return kagzi.Do(ctx, "print", work(200*time.Millisecond))
		},
		"carrier": func(ctx kagzi.Context) error {
			if err := kagzi.Do(ctx, "book", flaky(2, 180*time.Millisecond), soon); err != nil {
				return err
			}
			return kagzi.Do(ctx, "confirm", work(90*time.Millisecond))
		},
		"money": func(ctx kagzi.Context) error {
			if err := kagzi.Do(ctx, "authorize", work(60*time.Millisecond)); err != nil {
				return err
			}
			return kagzi.Do(ctx, "capture", work(350*time.Millisecond))
		},
	})
	if err != nil {
		return "", err
	}
	if _, err := kagzi.Map(ctx, "items", o.Items, func(ctx kagzi.Context, item string) (string, error) {
		return kagzi.Step(ctx, "pick", func(ctx context.Context) (string, error) {
			return item + " picked", work(40 * time.Millisecond)(ctx)
		})
	}); err != nil {
		return "", err
	}
	for range 6 {
		if err := kagzi.Do(ctx, "poll carrier", work(30*time.Millisecond)); err != nil {
			return "", err
		}
	}
	if _, err := kagzi.RunChild(ctx, "summary", Summary, fmt.Sprint(parcel)); err != nil {
		return "", err
	}
	if ok, err := kagzi.WaitSignal(ctx, Approved, kagzi.Timeout(time.Hour)); err != nil || !ok {
		return "", errors.Join(err, errors.New("nobody approved the parcel"))
	}
	return "order " + o.ID + " is on its way", nil
}

// histories makes a run with branches and retries, one with 2,000 steps, and one that has slept for three months.
func (d *Demo) histories(ctx context.Context) error {
	items := []string{"tea", "paper", "ink", "glue", "string"}
	run, err := kagzi.Start(ctx, d.Client, Fulfil, Order{ID: "900", Customer: "acme", Euros: 120, Items: items},
		kagzi.ID("fulfil-900"), kagzi.Metadata{"customer": "acme"})
	if err != nil {
		return err
	}
	if err := d.Client.Signal(ctx, run, Approved.With(true).WithID("click-900")); err != nil {
		return err
	}
	if err := d.Client.Signal(ctx, run, kagzi.DefineSignal[string]("aproved").With("by phone")); err != nil {
		return err
	}
	if err := d.await(ctx, run, kagzi.StatusCompleted); err != nil {
		return err
	}
	if err := d.crawl(ctx); err != nil {
		return err
	}
	return d.trial(ctx)
}

// manySteps are the steps of a crawl that took half an hour: of 999 pages, each is fetched and stored, and one in fifty
// fails once. A worker that the registry does not know any more had the first 600 of them.
const manySteps = `
	INSERT INTO kagzi.step_runs (run_id, namespace_id, step_id, attempt_number, status, step_kind, run_attempt,
		first_attempt, position, started_at, finished_at, output, error_kind, error, worker_id)
	SELECT r.run_id, r.namespace_id, 'pages/' || n || '/' || s.name, a, CASE WHEN s.fails AND a = 1 THEN 'FAILED'
		ELSE 'COMPLETED' END, 'FUNCTION', 1, 1, 10 + n,
		r.created_at + make_interval(secs => n * 1.8 + s.after + (a - 1) * 2),
			r.created_at + make_interval(secs => n * 1.8 + s.after + (a - 1) * 2 + 0.4 + n % 7 * 0.3),
		CASE WHEN s.fails AND a = 1 THEN NULL ELSE '{"bytes": 4096}'::bytea END,
		CASE WHEN s.fails AND a = 1 THEN 'timeout' END, CASE WHEN s.fails AND a = 1
			THEN 'no answer from page ' || n END,
		CASE WHEN n < 600 THEN uuid '01987654-0000-7000-8000-0000000000c1'
			ELSE (SELECT w.worker_id FROM kagzi.step_runs w WHERE w.run_id = r.run_id AND w.step_id = 'list pages') END
	FROM kagzi.workflow_runs r, generate_series(0, 998) n
	CROSS JOIN LATERAL (VALUES ('fetch', 0, n % 50 = 9), ('store', 5, false)) s (name, after, fails),
		generate_series(1, CASE WHEN s.fails THEN 2 ELSE 1 END) a
	WHERE r.run_id = $1`

// crawl makes a run of 2,000 steps. Executing them would take longer than a visitor wants to wait.
func (d *Demo) crawl(ctx context.Context) error {
	run, err := kagzi.Start(ctx, d.Client, Crawl, 999, kagzi.ID("crawl-1"))
	if err != nil {
		return err
	}
	if err := d.await(ctx, run, kagzi.StatusCompleted); err != nil {
		return err
	}
	for _, sql := range []string{
		`UPDATE kagzi.workflow_runs SET created_at = created_at - interval '40 min',
			started_at = started_at - interval '40 min', finished_at = finished_at - interval '8 min'
			WHERE run_id = $1`,
		`UPDATE kagzi.step_runs SET started_at = started_at - interval '40 min',
			finished_at = finished_at - interval '40 min' WHERE run_id = $1`,
		manySteps,
	} {
		if _, err := d.pool.Exec(ctx, sql, string(run.ID())); err != nil {
			return err
		}
	}
	return nil
}

// trial makes a run that has slept for three months, by putting its past back by that time.
func (d *Demo) trial(ctx context.Context) error {
	run, err := kagzi.Start(ctx, d.Client, Trial, "globex", kagzi.ID("trial-globex"))
	if err != nil {
		return err
	}
	if err := d.await(ctx, run, kagzi.StatusSleeping); err != nil {
		return err
	}
	for _, sql := range []string{
		`UPDATE kagzi.step_runs SET started_at = started_at - interval '90 days',
			finished_at = finished_at - interval '90 days', wake_at = wake_at - interval '90 days' WHERE run_id = $1`,
		`UPDATE kagzi.workflow_runs SET created_at = created_at - interval '90 days',
			started_at = started_at - interval '90 days', available_at = available_at - interval '90 days'
			WHERE run_id = $1`,
	} {
		if _, err := d.pool.Exec(ctx, sql, string(run.ID())); err != nil {
			return err
		}
	}
	return d.await(ctx, run, kagzi.StatusCompleted)
}

package kagzi_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/kind"
)

func ExampleStep() {
	ctx, _, client, worker := setup()
	defer teardown()

	quote := kagzi.Define[string, int]("quote")
	kagzi.Handle(worker, quote, func(ctx kagzi.Context, product string) (int, error) {
		cents, err := kagzi.Step(ctx, "look-up-price", func(ctx context.Context) (int, error) {
			return 1999, nil // a call to the outside world belongs in a step
		})
		if err != nil {
			return 0, err
		}
		return cents * 2, nil // what only computes does not
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, quote, "lamp")
	fmt.Println(run.Result(ctx))
	// Output: 3998 <nil>
}

// Input records the input of a step: Client.Steps shows it.
func ExampleInput() {
	ctx, _, client, worker := setup()
	defer teardown()

	pay := kagzi.Define[string, int]("pay")
	kagzi.Handle(worker, pay, func(ctx kagzi.Context, product string) (int, error) {
		price := map[string]any{"product": product, "cents": 1999}
		return kagzi.Step(ctx, "charge", func(ctx context.Context) (int, error) { return 1999, nil },
			kagzi.Input(price))
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, pay, "lamp")
	_, _ = run.Result(ctx)
	steps, _ := client.Steps(ctx, run.ID())
	fmt.Printf("%s: %s → %s\n", steps[0].Step, steps[0].Input, steps[0].Output)
	// Output: charge: {"cents":1999,"product":"lamp"} → 1999
}

// Three look-ups share a commit: the order is placed once their results are recorded.
func ExampleRepeatable() {
	ctx, _, client, worker := setup()
	defer teardown()

	buy := kagzi.Define[[]string, int]("buy")
	kagzi.Handle(worker, buy, func(ctx kagzi.Context, products []string) (int, error) {
		total := 0
		for _, product := range products {
			cents, err := kagzi.Step(ctx, "look-up-"+product, func(ctx context.Context) (int, error) {
				return 100 * len(product), nil
			}, kagzi.Repeatable())
			if err != nil {
				return 0, err
			}
			total += cents
		}
		return total, kagzi.Do(ctx, "order", func(ctx context.Context) error {
			steps, err := client.Steps(ctx, kagzi.CurrentStep(ctx).Run)
			fmt.Println("recorded before the order:", len(steps))
			return err
		})
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, buy, []string{"lamp", "chair", "desk"})
	fmt.Println(run.Result(ctx))
	// Output:
	// recorded before the order: 3
	// 1300 <nil>
}

// A failed attempt of the run is followed by another, in which the recorded step is not executed again.
func ExampleStep_remembered() {
	ctx, _, client, worker := setup()
	defer teardown()

	report := kagzi.Define[struct{}, string]("report", kagzi.RetryPolicy{Backoff: time.Millisecond})
	kagzi.Handle(worker, report, func(ctx kagzi.Context, _ struct{}) (string, error) {
		text, err := kagzi.Step(ctx, "gather", func(ctx context.Context) (string, error) {
			fmt.Println("gathering")
			return "all is well", nil
		})
		if err != nil {
			return "", err
		}
		if ctx.Attempt() == 1 {
			return "", errors.New("a mistake, deployed on a Friday")
		}
		return text, nil
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, report, struct{}{})
	fmt.Println(run.Result(ctx))
	// Output:
	// gathering
	// all is well <nil>
}

func ExampleDo() {
	ctx, _, client, worker := setup()
	defer teardown()

	remind := kagzi.Define[string, string]("remind")
	kagzi.Handle(worker, remind, func(ctx kagzi.Context, name string) (string, error) {
		err := kagzi.Do(ctx, "send-mail", func(ctx context.Context) error {
			fmt.Println("mail to", name)
			return nil
		})
		return "reminded", err
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, remind, "Ada")
	fmt.Println(run.Result(ctx))
	// Output:
	// mail to Ada
	// reminded <nil>
}

// The changes that the function makes in tx commit together with the record of the step, or not at all.
func ExampleStepTx() {
	ctx, pool, client, worker := setup()
	defer teardown()
	_, _ = pool.Exec(ctx, `CREATE TABLE ledger (id int GENERATED ALWAYS AS IDENTITY, cents int)`)

	capture := kagzi.Define[int, int]("capture")
	kagzi.Handle(worker, capture, func(ctx kagzi.Context, cents int) (int, error) {
		return kagzi.StepTx(ctx, "capture", func(ctx context.Context, tx pgx.Tx) (entry int, err error) {
			err = tx.QueryRow(ctx, `INSERT INTO ledger (cents) VALUES ($1) RETURNING id`, cents).Scan(&entry)
			return entry, err
		})
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, capture, 1999)
	fmt.Println(run.Result(ctx))
	// Output: 1 <nil>
}

func ExampleDoTx() {
	ctx, pool, client, worker := setup()
	defer teardown()
	_, _ = pool.Exec(ctx, `CREATE TABLE stock (product text, pieces int)`)
	_, _ = pool.Exec(ctx, `INSERT INTO stock VALUES ('lamp', 5)`)

	reserve := kagzi.Define[string, string]("reserve")
	kagzi.Handle(worker, reserve, func(ctx kagzi.Context, product string) (string, error) {
		err := kagzi.DoTx(ctx, "reserve", func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `UPDATE stock SET pieces = pieces - 1 WHERE product = $1`, product)
			return err
		})
		return "reserved", err
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, reserve, "lamp")
	fmt.Println(run.Result(ctx))
	var left int
	_ = pool.QueryRow(ctx, `SELECT pieces FROM stock`).Scan(&left)
	fmt.Println(left, "left")
	// Output:
	// reserved <nil>
	// 4 left
}

// The doctors on call may leave while another stays. Here both look before either leaves: at READ COMMITTED, both would
// leave. At SERIALIZABLE one of the two attempts fails, and the next one finds that the other doctor is gone.
func ExampleIsolation() {
	ctx, pool, client, worker := setup()
	defer teardown()
	_, _ = pool.Exec(ctx, `CREATE TABLE on_call (doctor text)`)
	_, _ = pool.Exec(ctx, `INSERT INTO on_call VALUES ('Ada'), ('Ben')`)

	var looked sync.WaitGroup // of the example: both first attempts have counted
	looked.Add(2)
	leave := kagzi.Define[string, string]("leave")
	kagzi.Handle(worker, leave, func(ctx kagzi.Context, doctor string) (string, error) {
		return kagzi.StepTx(ctx, "leave", func(ctx context.Context, tx pgx.Tx) (string, error) {
			var others int
			err := tx.QueryRow(ctx, `SELECT count(*) FROM on_call WHERE doctor <> $1`, doctor).Scan(&others)
			if kagzi.CurrentStep(ctx).Attempt == 1 {
				looked.Done()
				looked.Wait()
			}
			if err != nil || others == 0 {
				return doctor + " stays", err
			}
			_, err = tx.Exec(ctx, `DELETE FROM on_call WHERE doctor = $1`, doctor)
			return doctor + " leaves", err
		}, kagzi.Isolation(pgx.Serializable), kagzi.RetryPolicy{MaxAttempts: 20, Backoff: 10 * time.Millisecond})
	})
	serve(ctx, worker)

	ada, _ := kagzi.Start(ctx, client, leave, "Ada")
	ben, _ := kagzi.Start(ctx, client, leave, "Ben")
	_, err := ada.Result(ctx)
	fmt.Println(err)
	_, err = ben.Result(ctx)
	fmt.Println(err)
	var left int
	_ = pool.QueryRow(ctx, `SELECT count(*) FROM on_call`).Scan(&left)
	fmt.Println(left, "on call")
	// Output:
	// <nil>
	// <nil>
	// 1 on call
}

// Key is the same in every attempt: given to a payment gateway, say, it makes charging twice impossible.
func ExampleCurrentStep() {
	ctx, _, client, worker := setup()
	defer teardown()

	pay := kagzi.Define[int, string]("pay")
	kagzi.Handle(worker, pay, func(ctx kagzi.Context, cents int) (string, error) {
		return kagzi.Step(ctx, "charge", func(ctx context.Context) (string, error) {
			step := kagzi.CurrentStep(ctx)
			if step.Attempt == 1 {
				return "", errors.New("timeout: was it charged or not?")
			}
			return strings.Replace(step.Key, string(step.Run), "<run>", 1), nil
		}, kagzi.RetryPolicy{Backoff: time.Millisecond})
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, pay, 1999)
	fmt.Println(run.Result(ctx))
	// Output: <run>/charge <nil>
}

func ExampleRetryPolicy() {
	ctx, _, client, worker := setup()
	defer teardown()

	fetch := kagzi.Define[string, string]("fetch")
	kagzi.Handle(worker, fetch, func(ctx kagzi.Context, url string) (string, error) {
		return kagzi.Step(ctx, "fetch", func(ctx context.Context) (string, error) {
			if kagzi.CurrentStep(ctx).Attempt < 4 {
				return "", errors.New("try again later")
			}
			return "got it in the fourth attempt", nil
		}, kagzi.RetryPolicy{MaxAttempts: 5, Backoff: time.Millisecond, Factor: 3, MaxBackoff: time.Second})
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, fetch, "https://example.com")
	fmt.Println(run.Result(ctx))
	// Output: got it in the fourth attempt <nil>
}

func ExamplePermanent() {
	ctx, _, client, worker := setup()
	defer teardown()

	verify := kagzi.Define[string, string]("verify")
	kagzi.Handle(worker, verify, func(ctx kagzi.Context, iban string) (string, error) {
		return kagzi.Step(ctx, "verify", func(ctx context.Context) (string, error) {
			return "", kagzi.Permanent(errors.New("no such account"))
		})
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, verify, "XX00")
	_, _ = run.Result(ctx)
	steps, _ := client.Steps(ctx, run.ID())
	fmt.Println(len(steps), "attempt:", steps[0].Error)
	// Output: 1 attempt: no such account
}

// A call of a partner is tried again if the network failed, and not if it took too long: the partner may have acted.
func ExampleRetryPolicy_kinds() {
	ctx, _, client, worker := setup()
	defer teardown()

	call := kagzi.Define[struct{}, string]("call")
	kagzi.Handle(worker, call, func(ctx kagzi.Context, _ struct{}) (string, error) {
		return kagzi.Step(ctx, "call", func(ctx context.Context) (string, error) {
			if kagzi.CurrentStep(ctx).Attempt == 1 {
				return "", fmt.Errorf("no route: %w", kind.Network)
			}
			return "", fmt.Errorf("no answer: %w", kind.Timeout)
		}, kagzi.RetryPolicy{Forever: true, Backoff: time.Millisecond, Kinds: []kind.Kind{kind.Network}})
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, call, struct{}{})
	_, _ = run.Result(ctx)
	steps, _ := client.Steps(ctx, run.ID())
	for _, attempt := range steps {
		fmt.Println(attempt.Kind, attempt.Error)
	}
	// Output:
	// network no route: network
	// timeout no answer: timeout
}

func ExampleRetryAfter() {
	ctx, _, client, worker := setup()
	defer teardown()

	call := kagzi.Define[struct{}, string]("call")
	kagzi.Handle(worker, call, func(ctx kagzi.Context, _ struct{}) (string, error) {
		return kagzi.Step(ctx, "call", func(ctx context.Context) (string, error) {
			if kagzi.CurrentStep(ctx).Attempt == 1 {
				// From the header Retry-After of the response.
				return "", kagzi.RetryAfter(errors.New("too many requests"), 50*time.Millisecond)
			}
			return "answered", nil
		}, kagzi.RetryPolicy{Backoff: time.Millisecond})
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, call, struct{}{})
	fmt.Println(run.Result(ctx))
	steps, _ := client.Steps(ctx, run.ID())
	fmt.Println(steps[1].StartedAt.Sub(steps[0].EndedAt) >= 50*time.Millisecond)
	// Output:
	// answered <nil>
	// true
}

// A kind of one's own survives replay, where a wrapped error or its type would not.
func ExampleKindOf_declared() {
	ctx, _, client, worker := setup()
	defer teardown()

	const declined kind.Kind = "card_declined"
	pay := kagzi.Define[int, string]("pay")
	kagzi.Handle(worker, pay, func(ctx kagzi.Context, cents int) (string, error) {
		err := kagzi.Do(ctx, "charge", func(ctx context.Context) error {
			return kagzi.Permanent(fmt.Errorf("the bank says no: %w", declined))
		})
		if errors.Is(err, declined) {
			return "asked for another card", nil
		}
		return "paid", err
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, pay, 1999)
	fmt.Println(run.Result(ctx))
	// Output: asked for another card <nil>
}

func ExampleStepError() {
	ctx, _, client, worker := setup()
	defer teardown()

	ship := kagzi.Define[struct{}, string]("ship")
	kagzi.Handle(worker, ship, func(ctx kagzi.Context, _ struct{}) (string, error) {
		err := kagzi.Do(ctx, "book-courier", func(ctx context.Context) error {
			return errors.New("no courier is free")
		}, kagzi.RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond})
		if failed, ok := errors.AsType[*kagzi.StepError](err); ok {
			return fmt.Sprintf("%s failed %d times: %s", failed.Step, failed.Attempts, failed.Message), nil
		}
		return "shipped", err
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, ship, struct{}{})
	fmt.Println(run.Result(ctx))
	// Output: book-courier failed 2 times: no courier is free <nil>
}

// Given to a step, a Timeout bounds each attempt.
func ExampleTimeout() {
	ctx, _, client, worker := setup()
	defer teardown()

	ask := kagzi.Define[struct{}, string]("ask")
	kagzi.Handle(worker, ask, func(ctx kagzi.Context, _ struct{}) (string, error) {
		err := kagzi.Do(ctx, "ask", func(ctx context.Context) error {
			<-ctx.Done() // a service that does not answer
			return ctx.Err()
		}, kagzi.Timeout(20*time.Millisecond), kagzi.RetryPolicy{MaxAttempts: 1})
		if errors.Is(err, kind.Timeout) {
			return "no answer", nil
		}
		return "answered", err
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, ask, struct{}{})
	fmt.Println(run.Result(ctx))
	// Output: no answer <nil>
}

// Given to a start, a Timeout bounds the run from when it is due to its end, sleeps included.
func ExampleTimeout_run() {
	ctx, _, client, worker := setup()
	defer teardown()

	wait := kagzi.Define[struct{}, string]("wait", kagzi.Timeout(300*time.Millisecond))
	kagzi.Handle(worker, wait, func(ctx kagzi.Context, _ struct{}) (string, error) {
		return "", kagzi.Sleep(ctx, "for-ever", 24*time.Hour)
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, wait, struct{}{})
	_, err := run.Result(ctx)
	fmt.Println(errors.Is(err, kind.Deadline))
	// Output: true
}

// The second attempt goes on where the first one has failed.
func ExampleCheckpoint() {
	ctx, _, client, worker := setup()
	defer teardown()

	lines := []string{"lamp", "desk", "chair"}
	failed := false
	imports := kagzi.DefineDo[string]("import")
	kagzi.HandleDo(worker, imports, func(ctx kagzi.Context, file string) error {
		return kagzi.Do(ctx, "lines", func(ctx context.Context) error {
			line, err := kagzi.LastCheckpoint[int](ctx)
			for ; err == nil && line < len(lines); line++ {
				if line == 2 && !failed {
					failed = true
					return errors.New("connection reset")
				}
				fmt.Println(lines[line])
				err = kagzi.Checkpoint(ctx, line+1)
			}
			return err
		}, kagzi.RetryPolicy{MaxAttempts: 3, Backoff: time.Millisecond})
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, imports, "goods.csv")
	_, err := run.Result(ctx)
	fmt.Println(err)
	// Output:
	// lamp
	// desk
	// chair
	// <nil>
}

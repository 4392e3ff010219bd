package kagzitest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/kagzitest"
	"github.com/kagzi/kagzi/kind"
)

// An exampleT replaces the *testing.T of a test, which examples do not have.
type exampleT struct {
	testing.TB
	ctx      context.Context
	cleanups []func()
}

func newExampleT() *exampleT { return &exampleT{ctx: context.Background()} }

func (t *exampleT) Helper()                           {}
func (t *exampleT) Context() context.Context          { return t.ctx }
func (t *exampleT) Output() io.Writer                 { return io.Discard }
func (t *exampleT) Failed() bool                      { return false }
func (t *exampleT) Cleanup(f func())                  { t.cleanups = append(t.cleanups, f) }
func (t *exampleT) Errorf(format string, args ...any) { t.Error(fmt.Sprintf(format, args...)) }
func (t *exampleT) Fatal(args ...any)                 { panic(fmt.Sprint(args...)) }
func (t *exampleT) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// Error omits the run's ID, which differs each time, and has a line for each part of a report.
func (t *exampleT) Error(args ...any) {
	_, what, _ := strings.Cut(fmt.Sprint(args...), "diverges: ")
	fmt.Println(strings.ReplaceAll(what, "; ", "\n"))
}

func (t *exampleT) end() {
	for _, f := range t.cleanups {
		f()
	}
}

// Subscribe is a workflow of the program: a trial of three months, with a reminder before its end.
var Subscribe = kagzi.Define[string, string]("subscribe")

func subscribe(ctx kagzi.Context, customer string) (string, error) {
	if err := kagzi.Do(ctx, "welcome", func(ctx context.Context) error { return mail(customer) }); err != nil {
		return "", err
	}
	if err := kagzi.Sleep(ctx, "trial", 83*24*time.Hour); err != nil {
		return "", err
	}
	if err := kagzi.Do(ctx, "remind", func(ctx context.Context) error { return mail(customer) }); err != nil {
		return "", err
	}
	if err := kagzi.Sleep(ctx, "last week", 7*24*time.Hour); err != nil {
		return "", err
	}
	return kagzi.Step(ctx, "charge", func(ctx context.Context) (string, error) { return charge(customer) })
}

func mail(string) error             { return errors.New("there is no mail server") }
func charge(string) (string, error) { return "", errors.New("there is no bank") }

// A test of a workflow that takes three months. The test takes no time, because it moves the clock of its database
// forward.
func Example() {
	t := newExampleT() // the *testing.T of the test
	defer t.end()

	env := kagzitest.New(t)
	kagzi.Handle(env.Worker, Subscribe, subscribe)
	kagzitest.MockDo(env, "welcome", func(context.Context) error { return nil })
	kagzitest.MockDo(env, "remind", func(context.Context) error { return nil })
	kagzitest.Mock(env, "charge", func(context.Context) (string, error) { return "receipt 1", nil })

	run := kagzitest.Start(env, Subscribe, "Ada")
	env.Advance(84 * 24 * time.Hour)
	fmt.Println(env.Steps(run.ID()))
	env.Advance(7 * 24 * time.Hour)
	fmt.Println(env.Steps(run.ID()))
	fmt.Println(run.Result(t.Context()))
	// Output:
	// [welcome trial remind]
	// [welcome trial remind last week charge]
	// receipt 1 <nil>
}

// A mock whose first attempts fail. Result skips the ninety days that the run sleeps, and the backoffs between the
// attempts.
func ExampleMock() {
	t := newExampleT()
	defer t.end()

	env := kagzitest.New(t)
	kagzi.Handle(env.Worker, Subscribe, subscribe)
	kagzitest.MockDo(env, "welcome", func(context.Context) error { return nil })
	kagzitest.MockDo(env, "remind", func(context.Context) error { return nil })
	kagzitest.Mock(env, "charge", func(ctx context.Context) (string, error) {
		if kagzi.CurrentStep(ctx).Attempt < 3 {
			return "", kind.Unavailable
		}
		return "receipt 1", nil
	})

	run := kagzitest.Start(env, Subscribe, "Ada")
	fmt.Println(kagzitest.Result(env, run))
	fmt.Println(env.Steps(run.ID()))
	// Output:
	// receipt 1 <nil>
	// [welcome trial remind last week charge (unavailable) charge (unavailable) charge]
}

// A step that sets a variable of the workflow: the result of the run is right only while the run stays in memory. The
// replay after the test reports it.
func ExampleNew_replay() {
	t := newExampleT()

	env := kagzitest.New(t)
	kagzi.Handle(env.Worker, Subscribe, func(ctx kagzi.Context, customer string) (string, error) {
		var receipt string
		err := kagzi.Do(ctx, "charge", func(context.Context) error {
			receipt = "receipt 1"
			return nil
		})
		return receipt, err
	})
	run := kagzitest.Start(env, Subscribe, "Ada")
	fmt.Println(run.Result(t.Context()))

	t.end()
	// Output:
	// receipt 1 <nil>
	// the code now comes to another end: it completed with ""
	// the run completed with "receipt 1"
	// the code is the same, so take what differs from the result of a step
}

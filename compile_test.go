package kagzi_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A checker type-checks programs that use this package as it is.
type checker struct{ exports map[string]string }

func newChecker(t *testing.T) *checker {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}", ".", "./admin",
		"net/http")
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	c := &checker{map[string]string{}}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
		c.exports[path] = file
	}
	return c
}

// check returns what the compiler says of the program.
func (c *checker) check(t *testing.T, src any) (errs []string) {
	t.Helper()
	fset := token.NewFileSet()
	name := "program.go"
	if path, ok := src.(string); ok && strings.HasSuffix(path, ".go") {
		name, src = path, nil
	}
	file, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	conf := types.Config{
		Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
			return os.Open(c.exports[path])
		}),
		Error: func(err error) { errs = append(errs, err.Error()) },
	}
	_, _ = conf.Check("program", fset, []*ast.File{file}, nil) // Error has them all
	return errs
}

func TestTheDesignsProgramCompiles(t *testing.T) {
	t.Parallel()
	if errs := newChecker(t).check(t, "testdata/checkout/checkout.go"); errs != nil {
		t.Error(strings.Join(errs, "\n"))
	}
}

const program = `package program

import (
	"context"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
)

var (
	_ context.Context
	_ http.Client
	_ time.Time
	_ pgx.Tx
	_ admin.Target
)

var wf = kagzi.Define[int, int]("wf")

// A workflow function, and what it may know.
func workflow(ctx kagzi.Context, pool *pgxpool.Pool, client *kagzi.Client, worker *kagzi.Worker,
	run *kagzi.Run[int], tx pgx.Tx,
) (err error) {
	%s
	return err
}
`

func TestMistakesDoNotCompile(t *testing.T) {
	t.Parallel()
	c := newChecker(t)
	const noContext = "kagzi.Context does not implement context.Context"
	for _, tt := range []struct {
		name string
		code string
		says string // "" if it compiles: the same without the mistake
	}{
		{"Request", `_, err = http.NewRequestWithContext(ctx, "GET", "/", nil)`, noContext},
		{"Query", `_, err = pool.Exec(ctx, "SELECT 1")`, noContext},
		{"Start", `_, err = kagzi.Start(ctx, client, wf, 1)`, noContext},
		{"StartMany", `_, err = client.StartMany(ctx, nil)`, noContext},
		{"Result", `_, err = run.Result(ctx)`, noContext},
		{"Info", `_, err = run.Info(ctx)`, noContext},
		{"Get", `_, err = client.Get(ctx, kagzi.ID("x"))`, noContext},
		{"Cancel", `err = client.Cancel(ctx, kagzi.ID("x"))`, noContext},
		{"CurrentStep", `_ = kagzi.CurrentStep(ctx)`, noContext},
		{"Deadline", `_, _ = context.WithTimeout(ctx, time.Second)`, noContext},
		{
			"StepIn",
			`err = kagzi.Do(ctx, "a", func(ctx context.Context) error { return kagzi.Do(ctx, "b", ` +
				`func(context.Context) error { return nil }) })`, "context.Context does not implement kagzi.Context",
		},
		{
			"SleepIn", `err = kagzi.Do(ctx, "a", func(ctx context.Context) error { return kagzi.Sleep(ctx, "b", 1) })`,
			"context.Context does not implement kagzi.Context",
		},
		{
			"StepInTx",
			`err = kagzi.DoTx(ctx, "a", func(ctx context.Context, _ pgx.Tx) error { return kagzi.Sleep(ctx, "b", 1) })`,
			"context.Context does not implement kagzi.Context",
		},
		{
			"StepWithContext", `err = kagzi.Do(ctx, "a", func(ctx kagzi.Context) error { return nil })`,
			"func(ctx kagzi.Context) error",
		},
		{
			"BranchWithStepsContext", `err = kagzi.Parallel(ctx, "a", map[string]func(context.Context) error{})`,
			"map[string]func(context.Context) error",
		},
		{"IDOfAStep", `err = kagzi.Do(ctx, "a", nil, kagzi.ID("x"))`, "kagzi.ID does not implement kagzi.StepOption"},
		{"QueueOfAStep", `err = kagzi.Do(ctx, "a", nil, kagzi.Queue("x"))`, "kagzi.Queue does not implement " +
			"kagzi.StepOption"},
		{
			"ConcurrencyOfAStep", `err = kagzi.Do(ctx, "a", nil, kagzi.Concurrency(2))`,
			"kagzi.Concurrency does not implement kagzi.StepOption",
		},
		{"InTxOfAStep", `err = kagzi.Do(ctx, "a", nil, kagzi.InTx(tx))`, "does not implement kagzi.StepOption"},
		{
			"TimeoutOfAHandler", `kagzi.Handle[int, int](worker, wf, nil, kagzi.Timeout(1))`,
			"kagzi.Timeout does not implement kagzi.HandleOption",
		},
		{
			"RetryPolicyOfMap", `_, err = kagzi.Map[int, int](ctx, "m", nil, nil, kagzi.RetryPolicy{})`,
			"kagzi.RetryPolicy does not implement kagzi.BranchOption",
		},
		{
			"VersionOfARace", `_, _, err = kagzi.Race[int](ctx, "r", nil, kagzi.Version(1))`,
			"kagzi.Version does not implement kagzi.BranchOption",
		},
		{"ConcurrencyOfAStart", `_ = wf.With(1, kagzi.Concurrency(1))`, "kagzi.Concurrency does not implement " +
			"kagzi.StartOption"},
		{"CollectErrorsOfAStart", `_ = wf.With(1, kagzi.CollectErrors())`, "kagzi.BranchOption does not implement " +
			"kagzi.StartOption"},
		{"DurationAsTimeout", `err = kagzi.Do(ctx, "a", nil, time.Second)`, "time.Duration does not implement " +
			"kagzi.StepOption"},
		{
			"TimeoutOfACancel", `err = client.Cancel(context.Background(), kagzi.ID("x"), kagzi.Timeout(1))`,
			"kagzi.Timeout does not implement kagzi.ChangeOption",
		},
		{
			"VersionOfAResume",
			`err = admin.New(client).Runs.Resume(context.Background(), kagzi.ID("x"), kagzi.Version(1))`,
			"kagzi.Version does not implement kagzi.ChangeOption",
		},
		{
			"IDOfASignal", `err = client.Signal(context.Background(), kagzi.ID("x"), kagzi.Message{}, kagzi.ID("m"))`,
			"kagzi.ID does not implement kagzi.ChangeOption",
		},
		{
			"DurationOfAWait", `_, err = kagzi.WaitSignal(ctx, kagzi.DefineSignal[int]("s"), time.Second)`,
			"cannot use time.Second",
		},
		{
			"TimeoutOfAReplay", `err = worker.Replay(context.Background(), kagzi.ID("x"), kagzi.Timeout(1))`,
			"kagzi.Timeout does not implement kagzi.HandleOption",
		},
		{
			"GraceOfARestart",
			`_, err = admin.New(client).Runs.Restart(context.Background(), kagzi.ID("x"), kagzi.Grace(1))`,
			"kagzi.Grace does not implement admin.RestartOption",
		},
		{
			"QueueOfARestart",
			`_, err = admin.New(client).Runs.Restart(context.Background(), kagzi.ID("x"), kagzi.Queue("q"))`,
			"kagzi.Queue does not implement admin.RestartOption",
		},
		{
			"VersionOfManyCancels",
			`_, err = admin.New(client).Runs.CancelAll(context.Background(), kagzi.RunFilter{}, kagzi.Version(1))`,
			"kagzi.Version does not implement kagzi.ChangeOption",
		},
		{"StringAsReference", `_, err = client.Get(context.Background(), "x")`, "string does not implement kagzi.Ref"},
		{"InputOfAnotherType", `_ = wf.With("x")`, `cannot use "x"`},
		{
			"HandlerOfAnotherType",
			`kagzi.Handle(worker, wf, func(kagzi.Context, string) (int, error) { return 0, nil })`,
			"string",
		},
		{"ResultOfAnotherType", `var s string; s, err = run.Result(context.Background()); _ = s`, "string"},
		{"SleepWithoutName", `err = kagzi.Sleep(ctx, time.Second)`, "not enough arguments"},

		{"GoodQuery", `err = kagzi.Do(ctx, "a", func(ctx context.Context) error { _,
			err := pool.Exec(ctx, "SELECT 1"); return err })`, ""},
		{
			"GoodStart",
			`err = kagzi.Do(ctx, "a", func(ctx context.Context) error { _, err := kagzi.Start(ctx, client, wf, 1, ` +
				`kagzi.InTx(tx), kagzi.Delay(time.Hour)); return err })`, "",
		},
		{
			"GoodOptions",
			`_, err = kagzi.Map[int, int](ctx, "m", nil, nil, kagzi.Concurrency(1), kagzi.Timeout(1), ` +
				`kagzi.CollectErrors())`, "",
		},
		{"GoodHandle", `kagzi.Handle[int, int](worker, wf, nil, kagzi.Version(1))`, ""},
		{
			"GoodFork",
			`_, err = admin.New(client).Runs.Fork(context.Background(), kagzi.ID("x"), "s", kagzi.InTx(tx), ` +
				`kagzi.Reason("r"), ` +
				`kagzi.Version(1), kagzi.ID("y"), admin.NewInput(1))`, "",
		},
		{"GoodWait", `_, err = kagzi.WaitSignal(ctx, kagzi.DefineSignal[int]("s"), kagzi.Timeout(time.Second))`, ""},
		{
			"GoodReplay",
			`err = worker.Replay(context.Background(), kagzi.ID("x"), kagzi.Version(1), kagzi.AllowAdditions())`, "",
		},
		{
			"GoodCancelAll",
			`_, err = admin.New(client).Runs.CancelAll(context.Background(), kagzi.RunFilter{}, admin.DryRun(), ` +
				`kagzi.InTx(tx), ` +
				`kagzi.Reason("r"), kagzi.Grace(time.Minute))`, "",
		},
		{
			"GoodForkAll",
			`_, err = admin.New(client).Runs.ForkAll(context.Background(), kagzi.RunFilter{}, "s", admin.DryRun(), ` +
				`kagzi.InTx(tx), ` +
				`kagzi.Reason("r"), kagzi.Version(1))`, "",
		},
		{
			"GoodInference",
			`x, err := kagzi.Go(ctx, "b", func(ctx kagzi.Context) (int, error) { return 1, ctx.Err() }).Result(ctx); ` +
				`_ = x`, "",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			errs := c.check(t, fmt.Sprintf(program, tt.code))
			if tt.says == "" {
				if errs != nil {
					t.Error(strings.Join(errs, "\n"))
				}
				return
			}
			if len(errs) != 1 || !strings.Contains(errs[0], tt.says) {
				t.Errorf("got %q; want one error with %q", errs, tt.says)
			}
		})
	}
}

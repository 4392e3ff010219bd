package runs

import (
	"bytes"
	"context"
	"text/template"

	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/selection"
)

// A replayHint is what replay prints as JSON.
type replayHint struct {
	Run      kagzi.RunID `json:"run"`
	Workflow string      `json:"workflow"`
	Version  int         `json:"version"`
	Over     bool        `json:"over"` // only then it can be replayed
	Code     string      `json:"code"`
}

// replayTest is a test that replays one run. The user fills in the workflow and its function.
var replayTest = template.Must(template.New("").Parse(`package replay

import (
	"context"
	"os"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
)

// TestReplay executes today's code against the history of run {{.Run}}.
// It writes nothing, and calls no step.
func TestReplay(t *testing.T) {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("KAGZI_DATABASE_URL"))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	client, err := kagzi.NewClient(pool, kagzi.ClientConfig{Namespace: {{printf "%q" .Namespace}}}) ` +
	`// with the application's Codec and Sealer
	if err != nil {
		t.Fatal(err)
	}
	worker, err := kagzi.NewWorker(client, kagzi.WorkerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	kagzi.Handle(worker, YourWorkflow, yourFunction, kagzi.Version({{.Version}})) ` +
	`// the code of {{printf "%q" .Workflow}}
	if err := worker.Replay(ctx, kagzi.RunID({{printf "%q" .Run}})); err != nil {
		t.Fatal(err) // a *kagzi.DivergenceError names the first step that differs
	}
}
`))

// Replay returns kagzi replay.
func Replay(p *command.Program) *cobra.Command {
	var run selection.RunArg
	c := &cobra.Command{
		Use:   "replay RUN",
		Short: "Print a test that executes your code against a run's history",
		Long: `A replay executes the code of today against the recorded history of a run that is over, and finds the
first step that differs. It needs the code of the workflow, which this program does not have: so the command prints
a Go test that replays the run. Put it beside your workflow, and fill in the package and the names of the workflow
and its function.

To replay many runs, use kagzitest.Replay with a filter.`,
		Example: `  kagzi replay order-42 > replay_test.go`,
		Args:    run.Args(0),
	}
	run.Flags(c)
	c.RunE = p.WithClient(func(ctx context.Context, client *kagzi.Client, args []string) error {
		ref, _ := run.Take(args)
		info, err := client.Get(ctx, ref)
		if err != nil {
			return err
		}
		var code bytes.Buffer
		data := struct {
			Run                 kagzi.RunID
			Namespace, Workflow string
			Version             int
		}{info.ID, p.Namespace(), info.Workflow, max(info.Version, 1)}
		if err := replayTest.Execute(&code, data); err != nil {
			return err
		}
		if !info.Status.Ended() {
			p.Say("The run is %s, and only a run that is over can be replayed: kagzi runs wait %s waits for its end.",
				info.Status, info.ID)
		}
		return p.Done(replayHint{info.ID, info.Workflow, info.Version, info.Status.Ended(), code.String()}, "%s",
			bytes.TrimSuffix(code.Bytes(), []byte("\n")))
	})
	return c
}

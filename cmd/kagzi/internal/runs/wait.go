package runs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/selection"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/tables"
	"github.com/kagzi/kagzi/internal/explain"
)

func waitCommand(p *command.Program) *cobra.Command {
	var run selection.RunArg
	c := &cobra.Command{
		Use:   "wait RUN",
		Short: "Wait for the end of a run, and print its result",
		Long: `Wait prints the result of the run as JSON once it has completed. If the run fails or is cancelled, wait
prints the error to stderr and exits with code 1; when --timeout has passed, with code 5. With --json it prints the
whole run. While the database is away, it keeps waiting.`,
		Example: `  kagzi runs wait order-42 --timeout 5m
  kagzi runs wait order-42 | jq .total`,
		Args: run.Args(0),
	}
	run.Flags(c)
	c.RunE = p.WithClient(func(ctx context.Context, client *kagzi.Client, args []string) error {
		ref, _ := run.Take(args)
		return waitAndPrint(ctx, p, client, ref)
	})
	return c
}

func waitAndPrint(ctx context.Context, p *command.Program, c *kagzi.Client, ref kagzi.Ref) error {
	info, err := c.Get(ctx, ref)
	if err != nil {
		return err
	}
	if !info.Status.Ended() {
		if err := waitForEnd(ctx, c, info); err != nil {
			return err
		}
		if info, err = c.Get(ctx, info.ID); err != nil {
			return err
		}
	}
	if p.JSON {
		err = p.PrintJSON(info)
	} else if info.Status == kagzi.StatusCompleted {
		err = printResult(p, info.Output)
	}
	switch {
	case err != nil:
		return err
	case info.Status == kagzi.StatusCompleted:
		return nil
	case p.JSON:
		return command.ExitFailed
	case info.Status == kagzi.StatusCancelled:
		return fmt.Errorf("run %s was cancelled: kagzi runs log %[1]s says by whom", info.ID)
	}
	return fmt.Errorf("run %s failed: %s: kagzi runs get %[1]s shows its steps", info.ID,
		explain.Failure(info.Kind, info.Error))
}

// printResult prints a result that is JSON, or that the application's Codec has written. Of other bytes it says on
// stderr what they are: a terminal cannot show them, and a program that reads stdout expects JSON.
func printResult(p *command.Program, output json.RawMessage) error {
	if len(output) > 0 && !json.Valid(output) && p.World.Codec == nil {
		p.Say("The run has completed. Its result is %s: a command line with the application's Sealer and Codec prints "+
			"it.", tables.Brief(p.Screen, output))
		return nil
	}
	return p.Screen.Printf("%s", output)
}

// waitForEnd returns once the run is over, whatever its end.
func waitForEnd(ctx context.Context, c *kagzi.Client, info kagzi.RunInfo) error {
	run, err := kagzi.Find(ctx, c, kagzi.Define[json.RawMessage, json.RawMessage](info.Workflow), info.ID)
	if err != nil {
		return err
	}
	_, err = run.Result(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if _, ended := errors.AsType[*kagzi.RunError](err); ended {
		return nil
	}
	if errors.Is(err, kagzi.ErrNotFound) {
		return err
	}
	now, e := c.Get(ctx, info.ID) // a result that is not JSON is none of Result's
	if e == nil && now.Status.Ended() {
		return nil
	}
	return errors.Join(err, e)
}

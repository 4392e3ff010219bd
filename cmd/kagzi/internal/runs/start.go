package runs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/selection"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/tables"
	"github.com/kagzi/kagzi/internal/explain"
)

// A startArgs is the flags of runs start.
type startArgs struct {
	input, queue, id, key, group, delay, at, runTimeout string
	metadata, headers                                   []string
	version, priority                                   int
	wait                                                bool
}

func startCommand(p *command.Program) *cobra.Command {
	var s startArgs
	c := &cobra.Command{
		Use:   "start WORKFLOW",
		Short: "Start a run, with JSON as its input",
		Long: `Start starts a run of a workflow by its name. The run waits for a worker that has code for it.

This program does not know the application's code: it warns of a workflow or queue that no run and no live worker
has, does not check that the input fits, and knows no defaults of kagzi.Define, such as a queue. If the application
encrypts its values or has a Codec of its own, start runs with the application, or with a command line that it makes
with cli.Main: this one refuses if the workers of the namespace have a Sealer.

With --id the start is idempotent while the run is active: starting again returns that run.`,
		Example: `  kagzi runs start sign-up --input '"ada"' --id sign-up-ada
  kagzi runs start checkout --input '{"order": 42}' --queue shop --wait
  jq -n '{order: 42}' | kagzi runs start checkout --input -`,
		Args: command.Exactly("WORKFLOW"),
	}
	fs := c.Flags()
	fs.StringVarP(&s.input, "input", "i", "", "the input as `JSON`; @FILE reads a file, - standard input; "+
		"default: null")
	fs.StringVar(&s.id, "id", "", "the `ID` of the run, unique among the active ones")
	fs.StringVarP(&s.queue, "queue", "q", "", "the queue `NAME`; default: \"default\"")
	fs.IntVar(&s.version, "version", 0, "the `VERSION` of the workflow; default: the worker's")
	fs.IntVar(&s.priority, "priority", 0, "`N` from 1, which goes first, to 4; default: 3")
	fs.StringVar(&s.delay, "delay", "", "start no sooner than after this `DURATION`: 30s, 2h, 7d")
	fs.StringVar(&s.at, "at", "", "start no sooner than at this `TIME`: 2026-10-01T08:00:00Z")
	fs.StringVar(&s.runTimeout, "run-timeout", "", "end the run after this `DURATION`")
	fs.StringArrayVarP(&s.metadata, "metadata", "m", nil, "a tag, as `NAME=VALUE`; may be repeated")
	fs.StringArrayVar(&s.headers, "header", nil, "a header, as `NAME=VALUE`; may be repeated")
	fs.StringVar(&s.key, "key", "", "the `KEY` by which limits count the run")
	fs.StringVar(&s.group, "group", "", "the `GROUP` of which one run at a time is executed")
	fs.BoolVar(&s.wait, "wait", false, "wait for the end, and print the result like kagzi runs wait")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if err := command.FromOne(cmd.Flags(), "version", "priority"); err != nil {
			return err
		}
		opts, err := s.options()
		if err != nil {
			return err
		}
		input := json.RawMessage("null")
		if cmd.Flags().Changed("input") {
			if input, err = p.ReadJSON("input", s.input); err != nil {
				return err
			}
		}
		client, err := p.Sender(cmd.Context())
		if err != nil {
			return err
		}
		// before the run has them
		selection.WarnOfNames(cmd.Context(), p, client, kagzi.RunFilter{Workflow: args[0], Queue: s.queue})
		return start(cmd.Context(), p, client, kagzi.Define[json.RawMessage, json.RawMessage](args[0]), input,
			opts, s.wait)
	}
	return c
}

// options returns the options that the flags give.
func (s *startArgs) options() (opts []kagzi.StartOption, err error) {
	if s.id != "" {
		opts = append(opts, kagzi.ID(s.id))
	}
	if s.queue != "" {
		opts = append(opts, kagzi.Queue(s.queue))
	}
	if s.version != 0 {
		opts = append(opts, kagzi.Version(s.version))
	}
	if s.priority != 0 {
		opts = append(opts, kagzi.Priority(s.priority))
	}
	if s.key != "" {
		opts = append(opts, kagzi.Key(s.key))
	}
	if s.group != "" {
		opts = append(opts, kagzi.Group(s.group))
	}
	for _, d := range []struct {
		flag, text string
		option     func(time.Duration) kagzi.StartOption
	}{
		{"delay", s.delay, func(d time.Duration) kagzi.StartOption { return kagzi.Delay(d) }},
		{"run-timeout", s.runTimeout, func(d time.Duration) kagzi.StartOption { return kagzi.Timeout(d) }},
	} {
		if d.text == "" {
			continue
		}
		v, err := command.ParseDuration(d.flag, d.text)
		if err != nil {
			return nil, err
		}
		opts = append(opts, d.option(v))
	}
	at, err := command.ParseFuture("at", s.at, time.Now())
	if err != nil {
		return nil, err
	}
	if !at.IsZero() {
		opts = append(opts, kagzi.At(at))
	}
	tags, err := command.ParsePairs("metadata", s.metadata)
	if err != nil {
		return nil, err
	}
	if tags != nil {
		opts = append(opts, kagzi.Metadata(tags))
	}
	headers, err := command.ParsePairs("header", s.headers)
	if err == nil && headers != nil {
		opts = append(opts, kagzi.Headers(headers))
	}
	return opts, err
}

func start(ctx context.Context, p *command.Program, c *kagzi.Client,
	wf kagzi.Workflow[json.RawMessage, json.RawMessage], input json.RawMessage,
	opts []kagzi.StartOption, wait bool,
) error {
	run, err := kagzi.Start(ctx, c, wf, input, opts...)
	if err != nil {
		return err
	}
	if wait {
		p.Say("Started run %s.", run.ID())
		return waitAndPrint(ctx, p, c, run.ID())
	}
	if run.Existed() {
		return p.Done(kagzi.Started{ID: run.ID(), Existed: true}, "%s is active already", run.ID())
	}
	return p.Done(kagzi.Started{ID: run.ID()}, "%s", run.ID())
}

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

package changes

import (
	"context"

	"github.com/spf13/pflag"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
)

func cancelVerb() *verb {
	var by command.Cause
	var grace string
	v := &verb{
		name: "cancel", past: "cancelled", now: "cancelling", to: []string{"active"}, stops: true,
		short: "Cancel runs, and compensate what they did",
		long: `Cancel ends active runs and their children. Steps under way are told to stop, and compensations that a
run has registered are executed; the run stays active until then. A repeated cancel changes nothing, and says since
when the run is cancelled. kagzi runs resume continues a cancelled run that has no compensations.`,
		example: `  kagzi runs cancel order-42 --reason "the customer called"
  kagzi runs cancel --workflow checkout --status pending --dry-run`,
	}
	var opts []kagzi.ChangeOption
	v.flags = func(fs *pflag.FlagSet) {
		by.Flags(fs)
		fs.StringVar(&grace, "grace", "", "how long steps under way may go on, as `DURATION`: 30s")
	}
	v.check = func(*pflag.FlagSet) error {
		opts = by.Options()
		if grace == "" {
			return nil
		}
		d, err := command.ParseDuration("grace", grace)
		opts = append(opts, kagzi.Grace(d))
		return err
	}
	v.one = func(ctx context.Context, c *kagzi.Client, ref kagzi.Ref) (kagzi.RunID, error) {
		return changed(c.Cancel(ctx, ref, opts...))
	}
	v.all = func(ctx context.Context, c *kagzi.Client, f kagzi.RunFilter) (admin.BulkResult, error) {
		return admin.New(c).CancelAll(ctx, f, append(opts, admin.DryRun())...)
	}
	return v
}

func terminateVerb() *verb {
	var by command.Cause
	return &verb{
		name: "terminate", past: "terminated", now: "terminating", to: []string{"active"}, flags: by.Flags, stops: true,
		short: "End runs at once, without compensations",
		long: `Terminate ends active runs and their children at once, as cancelled. It executes no compensations, and
stops those under way.`,
		example: `  kagzi runs terminate order-42 --reason "a test order"
  kagzi runs terminate --queue load-test --yes`,
		one: func(ctx context.Context, c *kagzi.Client, ref kagzi.Ref) (kagzi.RunID, error) {
			return changed(admin.New(c).Terminate(ctx, ref, by.Options()...))
		},
		all: func(ctx context.Context, c *kagzi.Client, f kagzi.RunFilter) (admin.BulkResult, error) {
			return admin.New(c).TerminateAll(ctx, f, append(by.Options(), admin.DryRun())...)
		},
	}
}

func resumeVerb() *verb {
	var by command.Cause
	var forget []string
	v := &verb{
		name: "resume", past: "resumed", now: "resuming", to: []string{"failed", "cancelled"},
		short: "Continue runs that failed or were cancelled",
		long: `Resume continues failed and cancelled runs: what made them fail is tried again, and the results of all
other steps stay. It removes the run's timeout. If the code continued after a failure, that failure stays recorded,
unless --forget names its step.`,
		example: `  kagzi runs resume order-42
  kagzi runs resume --kind unavailable --ended-since 1h --dry-run`,
	}
	v.flags = func(fs *pflag.FlagSet) {
		by.Flags(fs)
		fs.StringArrayVar(&forget, "forget", nil, "try this failed `STEP` again, too; may be repeated")
	}
	options := func(more ...kagzi.ChangeOption) []kagzi.ChangeOption {
		if len(forget) > 0 {
			more = append(more, admin.Forget(forget...))
		}
		return append(by.Options(), more...)
	}
	v.one = func(ctx context.Context, c *kagzi.Client, ref kagzi.Ref) (kagzi.RunID, error) {
		return changed(admin.New(c).Resume(ctx, ref, options()...))
	}
	v.all = func(ctx context.Context, c *kagzi.Client, f kagzi.RunFilter) (admin.BulkResult, error) {
		return admin.New(c).ResumeAll(ctx, f, options(admin.DryRun())...)
	}
	return v
}

package changes

import (
	"context"

	"github.com/spf13/pflag"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
)

// A verb is a change of one run, or of those that a filter selects.
type verb struct {
	name, past, now string // "cancel", "cancelled", "cancelling"
	short, long     string
	example         string
	to              []string // names in statuses: the runs that the verb applies to
	flags           func(*pflag.FlagSet)

	// check reads the verb's flags. one and all are called after it.
	check func(*pflag.FlagSet) error
	// returns the new run, if it makes one
	one   func(ctx context.Context, c *kagzi.Client, ref kagzi.Ref) (kagzi.RunID, error)
	all   func(ctx context.Context, c *kagzi.Client, f kagzi.RunFilter) (admin.BulkResult, error)
	ends  bool // it deletes runs, and their children with them
	stops bool // it succeeds for a run that is cancelled already

	// already says that the verb had nothing to change in a run which was as before, as in "was not paused"; empty: it
	// had. nil: it always has.
	already func(ctx context.Context, c *kagzi.Client, before was) (string, error)
}

// changed has no new run.
func changed(err error) (kagzi.RunID, error) { return "", err }

// A was is a run as it was before a change.
type was struct {
	run kagzi.RunInfo
	log []admin.LogEntry
}

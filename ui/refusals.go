package ui

import (
	"errors"
	"slices"

	"github.com/kagzi/kagzi"
)

var errCancelled = errors.New("it is cancelled already")

// inapplicable are the errors of a run to which a verb does not apply. It is skipped, as the bulk verbs of the library
// do.
var inapplicable = []error{
	kagzi.ErrNotFound, kagzi.ErrRunFinished, kagzi.ErrRunActive, kagzi.ErrIDConflict, kagzi.ErrCompensated,
	kagzi.ErrNotWaiting, kagzi.ErrRunNeeded,
}

// applies reports whether an error says that a verb does not apply to a run.
func applies(err error) bool {
	return slices.ContainsFunc(inapplicable, func(reason error) bool { return errors.Is(err, reason) })
}

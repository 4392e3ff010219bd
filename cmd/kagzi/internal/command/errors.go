package command

import (
	"errors"
	"fmt"

	"github.com/kagzi/kagzi"
)

// A usageError reports wrong flags or arguments.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

// Usagef returns the error of wrong flags or arguments.
func Usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// A Code is an exit code. As an error it ends the program without a message: the command has printed what there is to
// say.
type Code int

// The exit codes that the help of kagzi documents.
const (
	ExitDone        Code = 0
	ExitFailed      Code = 1
	ExitUsage       Code = 2
	ExitNotFound    Code = 3
	ExitUnwell      Code = 4
	ExitTimeout     Code = 5
	ExitInterrupted Code = 130
)

func (e Code) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// Inapplicable reports whether the error is that of a run to which the verb does not apply.
func Inapplicable(err error) bool {
	for _, reason := range []error{
		kagzi.ErrNotFound, kagzi.ErrRunFinished, kagzi.ErrRunActive, kagzi.ErrIDConflict,
		kagzi.ErrCompensated, kagzi.ErrNotWaiting, kagzi.ErrRunNeeded,
	} {
		if errors.Is(err, reason) {
			return true
		}
	}
	return false
}

package command

import "fmt"

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

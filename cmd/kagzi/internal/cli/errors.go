package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
	"github.com/kagzi/kagzi/internal/explain"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/migrations"
)

// The exit codes that the help of kagzi documents.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitUnwell      = 4
	exitTimeout     = 5
	exitInterrupted = 130
)

// A usageError reports wrong flags or arguments.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// A codeError ends the program with a code, and without a message: the command has printed what there is to say.
type codeError int

func (e codeError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// end prints the error with which the command ended, and returns the program's exit code.
func (a *app) end(ctx context.Context, err error) int {
	if err == nil {
		return exitDone
	}
	if code, ok := errors.AsType[codeError](err); ok {
		return int(code)
	}
	if errors.Is(err, syscall.EPIPE) { // the reader, such as head, has enough
		return exitDone
	}
	code := a.exitCode(ctx, err)
	if code == exitInterrupted {
		a.say("interrupted")
		return code
	}
	a.say("kagzi: %s", a.redact(oneLine(a.explain(err))))
	return code
}

func (a *app) exitCode(ctx context.Context, err error) int {
	_, usage := errors.AsType[*usageError](err)
	switch {
	case usage, strings.HasPrefix(err.Error(), "unknown command"): // of cobra, which has no type for it
		return exitUsage
	case ctx.Err() != nil:
		return exitInterrupted
	case errors.Is(err, kagzi.ErrNotFound):
		return exitNotFound
	case a.away(err):
		return exitUnwell
	case inapplicable(err): // of kind.BadRequest, too
		return exitFailed
	case errors.Is(err, errTimeout), errors.Is(err, context.DeadlineExceeded):
		return exitTimeout
	case kagzi.KindOf(err) == kind.BadRequest:
		return exitUsage
	}
	return exitFailed
}

// away reports whether the database does not answer, or lets nobody in.
func (a *app) away(err error) bool {
	_, away := errors.AsType[*connectError](a.connectionError(err))
	return away || pg.Classify(err) == pg.ClassAway
}

// hints say what to do about errors of the library, in terms of this program.
var hints = []struct {
	err  error
	text string
}{
	{migrations.ErrMissing, "run kagzi migrate up, or correct the database"},
	{migrations.ErrOlder, "run kagzi migrate up"},
	{migrations.ErrNewer, "install a newer kagzi"},
	{kagzi.ErrRunFinished, "kagzi runs restart starts another run like it"},
	{kagzi.ErrRunActive, "kagzi runs wait waits for its end, kagzi runs cancel ends it"},
	{kagzi.ErrCompensated, "kagzi runs restart starts another run like it"},
}

// notFound are the things that the text of a kagzi.ErrNotFound names, and where to look for them.
var notFound = [][2]string{
	{"run", "kagzi runs list shows the runs, --namespace chooses another namespace"},
	{"schedule", "kagzi schedules list shows the schedules"},
	{"worker", "kagzi workers list --all shows the workers"},
	{"limit", "kagzi limits list shows the limits"},
}

// explain returns the text of an error with a hint.
func (a *app) explain(err error) string {
	if errors.Is(err, errTimeout) || errors.Is(err, context.DeadlineExceeded) && a.timeout > 0 {
		return fmt.Sprintf("no answer within the --timeout of %s: give more time", a.timeout)
	}
	err = a.connectionError(err)
	text := inTerms(err.Error())
	if pe, ok := errors.AsType[*pgconn.PgError](err); ok && pe.Code == "42501" {
		return text + ": grant the right, or connect as another user"
	}
	if errors.Is(err, kagzi.ErrNotFound) {
		for _, h := range notFound {
			if strings.Contains(text, h[0]+" not found") && !strings.Contains(text, ": kagzi") {
				return text + ": " + h[1]
			}
		}
		return text
	}
	if _, ok := errors.AsType[*endedError](err); ok { // who stops a run wants no other one like it
		return text
	}
	for _, h := range hints {
		if errors.Is(err, h.err) {
			for _, advice := range []string{
				": run kagzi migrate up, or connect to the database that has it",
				": run kagzi migrate up", ": upgrade this program's Kagzi",
			} {
				text = strings.ReplaceAll(text, advice, "")
			}
			// it has advice of its own
			if _, about, ok := strings.Cut(h.err.Error(), "kagzi: run "); ok && !strings.HasSuffix(text, "run "+about) {
				return text
			}
			return text + ": " + h.text
		}
	}
	return text
}

// oneLine returns the text of an error in one line, without the name of the library.
func oneLine(s string) string {
	return screen.Line(explain.OneLine(s))
}

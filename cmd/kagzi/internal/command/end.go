package command

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/words"
	"github.com/kagzi/kagzi/internal/deeds"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/kind"
)

// End prints the error with which the command ended, and returns the program's exit code.
func (p *Program) End(ctx context.Context, err error) Code {
	if err == nil {
		return ExitDone
	}
	if code, ok := errors.AsType[Code](err); ok {
		return code
	}
	if errors.Is(err, syscall.EPIPE) { // the reader, such as head, has enough
		return ExitDone
	}
	code := p.exitCode(ctx, err)
	if code == ExitInterrupted {
		p.Say("interrupted")
		return code
	}
	p.Say("kagzi: %s", p.DB.Redact(words.OneLine(p.explain(err))))
	return code
}

func (p *Program) exitCode(ctx context.Context, err error) Code {
	_, usage := errors.AsType[*usageError](err)
	switch {
	case usage, strings.HasPrefix(err.Error(), "unknown command"): // of cobra, which has no type for it
		return ExitUsage
	case ctx.Err() != nil:
		return ExitInterrupted
	case errors.Is(err, kagzi.ErrNotFound):
		return ExitNotFound
	case p.away(err):
		return ExitUnwell
	case deeds.Inapplicable(err): // of kind.BadRequest, too
		return ExitFailed
	case p.late(err):
		return ExitTimeout
	case kagzi.KindOf(err) == kind.BadRequest:
		return ExitUsage
	}
	return ExitFailed
}

// away reports whether the database does not answer, or refuses the user.
func (p *Program) away(err error) bool {
	_, away := errors.AsType[*connectError](p.DB.ConnectionError(err))
	return away || pg.Classify(err) == pg.ClassAway
}

// late reports whether the command's time is over. The server ends a statement at the same moment, with an error of its
// own.
func (p *Program) late(err error) bool {
	return errors.Is(err, errTimeout) || errors.Is(err, context.DeadlineExceeded) ||
		p.timeout > 0 && pg.Code(err) == "57014"
}

// explain returns the text of an error with a hint.
func (p *Program) explain(err error) string {
	if p.timeout > 0 && p.late(err) {
		return fmt.Sprintf("no answer within the --timeout of %s: give more time", p.timeout)
	}
	return words.Explain(p.DB.ConnectionError(err))
}

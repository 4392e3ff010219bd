package failure

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"

	"github.com/kagzi/kagzi/internal/text"
)

// SafeLogger returns log with a handler that survives panics of log's handler. Kagzi logs in goroutines of its own,
// where such a panic would end the process. A line that the handler loses goes to the standard error output.
func SafeLogger(log *slog.Logger) *slog.Logger {
	if _, safe := log.Handler().(safeHandler); safe {
		return log
	}
	return slog.New(safeHandler{log.Handler()})
}

type safeHandler struct{ next slog.Handler }

func (h safeHandler) Enabled(ctx context.Context, level slog.Level) (enabled bool) {
	defer func() {
		if recover() != nil {
			enabled = true
		}
	}()
	return h.next.Enabled(ctx, level)
}

func (h safeHandler) Handle(ctx context.Context, r slog.Record) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = OfPanic(v, debug.Stack())
			_, _ = fmt.Fprintf(os.Stderr, "%s %s (%s in the slog.Handler)\n", r.Level, text.OneLine(r.Message),
				text.OneLine(err.Error()))
		}
	}()
	return h.next.Handle(ctx, r)
}

func (h safeHandler) WithAttrs(attrs []slog.Attr) (with slog.Handler) {
	defer func() {
		if recover() != nil {
			with = h
		}
	}()
	return safeHandler{h.next.WithAttrs(attrs)}
}

func (h safeHandler) WithGroup(name string) (with slog.Handler) {
	defer func() {
		if recover() != nil {
			with = h
		}
	}()
	return safeHandler{h.next.WithGroup(name)}
}

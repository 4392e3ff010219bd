package replay

import (
	"context"
	"log/slog"
)

func (b *Branch) Logger() *slog.Logger {
	b.logOnce.Do(func() { b.log = slog.New(replayHandler{b.e.log().Handler(), b}) })
	return b.log
}

// A replayHandler drops the lines that a function logs while it passes recorded steps: the first execution has logged
// them.
type replayHandler struct {
	slog.Handler
	b *Branch
}

func (h replayHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.b.logs() && h.Handler.Enabled(h.context(ctx), level)
}

func (h replayHandler) Handle(ctx context.Context, r slog.Record) error {
	return h.Handler.Handle(h.context(ctx), r)
}

// context returns the branch's context for a line that has none, so that the application's handler finds the values
// that interceptors put into it.
func (h replayHandler) context(ctx context.Context) context.Context {
	if ctx == context.Background() {
		return h.b.ctx
	}
	return ctx
}

func (h replayHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return replayHandler{h.Handler.WithAttrs(attrs), h.b}
}

func (h replayHandler) WithGroup(name string) slog.Handler {
	return replayHandler{h.Handler.WithGroup(name), h.b}
}

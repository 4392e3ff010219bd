package namespaces

import (
	"context"
	"log/slog"
	"strings"
)

// A quiet handler is for the workers of namespaces, which begin and end all the time: it logs Kagzi's lines of the
// level Info as Debug. Lines of the application's code stay as they are. Each line has the namespace, those of Kagzi
// have it once.
type quiet struct{ next slog.Handler }

const (
	namespaceKey = "namespace"
	ours         = "kagzi: " // begins the lines of Kagzi
)

// of returns the handler for a namespace.
func (q quiet) of(namespace string) slog.Handler {
	return quiet{q.next.WithAttrs([]slog.Attr{slog.String(namespaceKey, namespace)})}
}

func (q quiet) Enabled(ctx context.Context, level slog.Level) bool { return q.next.Enabled(ctx, level) }

func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	if !strings.HasPrefix(r.Message, ours) {
		return q.next.Handle(ctx, r)
	}
	level := r.Level
	if level == slog.LevelInfo {
		level = slog.LevelDebug
	}
	if !q.next.Enabled(ctx, level) {
		return nil
	}
	out := slog.NewRecord(r.Time, level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		out.AddAttrs(others([]slog.Attr{a})...)
		return true
	})
	return q.next.Handle(ctx, out)
}

func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler {
	return quiet{q.next.WithAttrs(others(attrs))}
}

func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.next.WithGroup(name)} }

// others returns the attributes that are not the namespace.
func others(attrs []slog.Attr) (out []slog.Attr) {
	for _, a := range attrs {
		if a.Key != namespaceKey {
			out = append(out, a)
		}
	}
	return out
}

package namespaces

import (
	"context"
	"log/slog"
)

// A quiet handler is for the workers of namespaces, which begin and end all the time: it logs what they say at Info as
// Debug. Each of its records has the namespace, once.
type quiet struct{ next slog.Handler }

const namespaceKey = "namespace"

// of returns the handler for a namespace.
func (q quiet) of(namespace string) slog.Handler {
	return quiet{q.next.WithAttrs([]slog.Attr{slog.String(namespaceKey, namespace)})}
}

func demoted(level slog.Level) slog.Level {
	if level == slog.LevelInfo {
		return slog.LevelDebug
	}
	return level
}

func (q quiet) Enabled(ctx context.Context, level slog.Level) bool {
	return q.next.Enabled(ctx, demoted(level))
}

func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	out := slog.NewRecord(r.Time, demoted(r.Level), r.Message, r.PC)
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

package namespaces

import (
	"bytes"
	"log/slog"
	"testing"
)

// Kagzi's lines at Info are logged as Debug, and those of the application's code stay as they are.
func TestLinesOfANamespace(t *testing.T) {
	t.Parallel()
	for level, want := range map[slog.Level]string{
		slog.LevelInfo: "level=WARN msg=\"kagzi: step failed\" namespace=acme\n" +
			"level=INFO msg=charging namespace=acme namespace=kube-system\n",
		slog.LevelDebug: "level=DEBUG msg=\"kagzi: worker started\" namespace=acme queues=[default]\n" +
			"level=WARN msg=\"kagzi: step failed\" namespace=acme\n" +
			"level=INFO msg=charging namespace=acme namespace=kube-system\n",
	} {
		var lines bytes.Buffer
		log := slog.New(quiet{slog.NewTextHandler(&lines, &slog.HandlerOptions{
			Level: level,
			ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			},
		})}.of("acme"))
		log.Info("kagzi: worker started", "namespace", "acme", "queues", []string{"default"})
		log.With("namespace", "acme").Warn("kagzi: step failed")
		log.Info("charging", "namespace", "kube-system")
		if got := lines.String(); got != want {
			t.Errorf("from %v on, the lines are\n%s\nwant\n%s", level, got, want)
		}
	}
}

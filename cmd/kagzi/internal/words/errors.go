package words

import (
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
	"github.com/kagzi/kagzi/internal/deeds"
	"github.com/kagzi/kagzi/internal/explain"
	"github.com/kagzi/kagzi/migrations"
)

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
	{admin.ErrCompensated, "kagzi runs restart starts another run like it"},
}

// notFound are the things that the text of a kagzi.ErrNotFound names, and where to look for them.
var notFound = [][2]string{
	{"run", "kagzi runs list shows the runs, --namespace chooses another namespace"},
	{"schedule", "kagzi schedules list shows the schedules"},
	{"worker", "kagzi workers list --all shows the workers"},
	{"limit", "kagzi limits list shows the limits"},
}

// Explain returns the text of an error in terms of this program, with a hint.
func Explain(err error) string {
	text := deeds.InCommands(err.Error())
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
	if _, ok := errors.AsType[*deeds.Ended](err); ok {
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

// OneLine returns the text of an error in one line, without the name of the library.
func OneLine(s string) string {
	return screen.Line(explain.OneLine(s))
}

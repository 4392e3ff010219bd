package web

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/deeds"
)

// Away reports whether the database gives no answer, so that the same request may succeed later.
func Away(err error) bool {
	if unconnected(err) { // also with a wrong password, which an administrator mends
		return true
	}
	switch kagzi.HTTPStatus(err) {
	case http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusBadGateway:
		return true
	}
	return false
}

// unconnected reports whether there is no connection to the database.
func unconnected(err error) bool {
	_, ok := errors.AsType[*pgconn.ConnectError](err)
	return ok
}

// Sentence returns the text of an error for people.
func Sentence(err error) string {
	if unconnected(err) { // its text has the host, the user and the database
		return "The program cannot connect to Postgres. Its log says why."
	}
	text := deeds.InPages(strings.TrimPrefix(err.Error(), "kagzi: "))
	if text == "" {
		return "unknown error"
	}
	begin, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(begin)) + text[size:]
}

// A statusError is an error with the status and the text of its page.
type statusError struct {
	code int
	text string
}

func (e *statusError) Error() string { return e.text }

// Status returns an error with the status and the text of its page.
func Status(code int, text string) error { return &statusError{code, text} }

// BadRequest explains a wrong value that a viewer typed.
func BadRequest(format string, args ...any) error {
	return Status(http.StatusBadRequest, fmt.Sprintf(format, args...))
}

// StatusOf returns the status of the page that shows err.
func StatusOf(err error) int {
	if e, ok := errors.AsType[*statusError](err); ok {
		return e.code
	}
	return kagzi.HTTPStatus(err)
}

// WhyNot returns why a verb does not apply to a run, as a sentence without the verb and the run.
func WhyNot(err error, id kagzi.RunID) string {
	if unconnected(err) {
		return Sentence(err)
	}
	text := err.Error()
	if _, about, ok := strings.Cut(text, string(id)); ok {
		if _, after, ok := strings.Cut(about, ": "); ok {
			text = after
		}
	}
	text = strings.TrimSuffix(Sentence(errors.New(text)), ".")
	return text + "."
}

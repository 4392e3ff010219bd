package failure

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/kagzi/kagzi/internal/text"
)

// An operation is the attempt in which err came up, with one prefix for both.
type operation struct {
	op  string
	err error
}

// Wrap is err with the operation that failed.
func Wrap(err error, format string, args ...any) error {
	return &operation{fmt.Sprintf(format, cleaned(args)...), err}
}

// longestName is the most bytes of a name that an error has as it is.
const longestName = 300

// cleaned returns args with names quoted and shortened that nothing can have: they would break the lines of a log.
func cleaned(args []any) []any {
	out := slices.Clone(args)
	for i, arg := range out {
		if s := fmt.Sprint(arg); len(s) > longestName || !text.IsSane(s) || strings.ContainsAny(s, "\n\t") {
			out[i] = quoted(text.Quote(s))
		}
	}
	return out
}

// A quoted is quoted already, whatever the verb.
type quoted string

// Format writes q as it is.
func (q quoted) Format(w fmt.State, _ rune) { _, _ = io.WriteString(w, string(q)) }

// Error is in one line, with several mistakes too, and names the operation once.
func (e *operation) Error() string {
	message := strings.ReplaceAll(trimPrefix(e.err.Error()), "\nkagzi: ", "; ")
	if strings.HasPrefix(message, e.op+" ") {
		return "kagzi: " + message
	}
	// The store says what it tried, too: "get run: …" adds nothing to "get 42: …".
	verb, _, _ := strings.Cut(e.op, " ")
	if head, rest, ok := strings.Cut(message, ": "); ok &&
		(head == e.op || head == verb || strings.HasPrefix(head, verb+" ") && strings.Count(head, " ") < 3) {
		message = rest
	}
	return "kagzi: " + e.op + ": " + message
}

func (e *operation) Unwrap() error { return e.err }

// An explanation is other errors in words that say all that they do.
type explanation struct {
	message string
	errs    []error
}

// Explain is the errors in other words, without a prefix, that say all that they do.
func Explain(message string, errs ...error) error { return &explanation{message, errs} }

func (e *explanation) Error() string   { return "kagzi: " + e.message }
func (e *explanation) Unwrap() []error { return e.errs }

// Prefixed is err with the package's prefix, once.
func Prefixed(err error) error {
	if err == nil || strings.HasPrefix(err.Error(), "kagzi: ") {
		return err
	}
	return fmt.Errorf("kagzi: %w", err)
}

func trimPrefix(s string) string { return strings.TrimPrefix(s, "kagzi: ") }

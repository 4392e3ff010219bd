package kagzi

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/store"
)

const (
	maxNameBytes       = 255
	maxMetadataEntries = 64
	maxMetadataBytes   = 16 << 10 // of keys and values together
)

// validateName refuses an invalid name of a workflow, queue, signal, schedule or build. field says whose name it is:
// "queue".
func validateName(field, s string) error {
	switch {
	case s == "":
		return fmt.Errorf("kagzi: %s is empty", field)
	case len(s) > maxNameBytes:
		return fmt.Errorf("kagzi: %s %s has %d bytes: at most %d are allowed", field, text.Quote(s), len(s),
			maxNameBytes)
	case !utf8.ValidString(s):
		return fmt.Errorf("kagzi: %s %s is not valid UTF-8", field, text.Quote(s))
	}
	if i := strings.IndexFunc(s, unicode.IsControl); i >= 0 {
		r, _ := utf8.DecodeRuneInString(s[i:])
		return fmt.Errorf("kagzi: %s %s contains the control character %U: remove it", field, text.Quote(s), r)
	}
	return nil
}

// maxShare is the largest share of a queue: more would only lose the fractions of others.
const maxShare = 1_000_000

// validateShare validates the name of a worker's queue, and its share.
func validateShare(queue string, share int) error {
	if err := validateQueue(queue); err != nil {
		return err
	}
	if share < 1 || share > maxShare {
		return fmt.Errorf("kagzi: queue %s has a share of %d: give between 1 and %d", text.Quote(queue),
			share, maxShare)
	}
	return nil
}

// validateQueue is validateName for a queue. Its error for an empty name names the default queue.
func validateQueue(s string) error {
	if s == "" {
		return errors.New(`kagzi: the queue's name is empty: the default one is "default"`)
	}
	return validateName("queue", s)
}

// validateLimit is validateName for a limit on steps.
func validateLimit(s string) error {
	if s == "" {
		return errors.New("kagzi: the limit's name is empty: give the name of a limit that Client.SetLimit sets")
	}
	return validateName("limit", s)
}

// validateWorkflow is validateName for a workflow: a zero Workflow and a zero Call have an empty name.
func validateWorkflow(s string) error {
	if s == "" {
		return errors.New("kagzi: workflow name is empty: name it in kagzi.Define, and make a Call with Workflow.With")
	}
	return validateName("workflow name", s)
}

// validateNamespace is validateName for a namespace: in a notification a ':' ends it.
func validateNamespace(s string) error {
	if err := validateName("namespace", s); err != nil {
		return err
	}
	if strings.Contains(s, ":") {
		return fmt.Errorf("kagzi: namespace %s contains ':': use another character, such as '-' or '.'", text.Quote(s))
	}
	return nil
}

// validateStepName is validateName for a step or branch: '/' ends a branch's name, '#' precedes the count
// of a repeated one.
func validateStepName(field, s string) error {
	if s == "" {
		return fmt.Errorf("kagzi: the %s's name is empty", strings.TrimSuffix(field, " name"))
	}
	if err := validateName(field, s); err != nil {
		return err
	}
	if i := strings.IndexAny(s, "#/"); i >= 0 {
		return fmt.Errorf("kagzi: %s %s contains %q: Kagzi uses it in names of its own; use another character, such "+
			"as '-' or ':'",
			field, text.Quote(s), s[i])
	}
	return nil
}

// validateExternalID is validateName for the caller's ID of a run.
func validateExternalID(s string) error {
	if s == "" {
		return fmt.Errorf("kagzi: ID is empty: give what identifies the run, such as an order number, or leave the " +
			"option out")
	}
	return validateName("ID", s)
}

// validateNewID is validateExternalID for a run that is started: the runs of consumers have IDs of their own.
func validateNewID(s string) error {
	if reserved := store.RunOfConsumer(""); strings.HasPrefix(s, reserved) {
		return fmt.Errorf("kagzi: ID %s begins with %q, as the IDs of the runs of consumers do: give another one",
			text.Quote(s), reserved)
	}
	return validateExternalID(s)
}

// validateTimeout refuses a timeout that must be a mistake.
func validateTimeout(field string, d time.Duration) error {
	if d == 0 {
		return fmt.Errorf("kagzi: %s is 0: leave the option out instead", field)
	}
	return duration.Check(field, d)
}

// mostListed is the most rows that a list asks the database for, whose numbers of rows have 32 bits.
const mostListed = 1 << 30

// listed returns how many rows a list returns whose filter has the Limit. A larger Limit than mostListed means all
// rows.
func listed(limit int) (int, error) {
	switch {
	case limit < 0:
		return 0, fmt.Errorf("kagzi: Limit is %d: give a positive number, or leave it out for 100", limit)
	case limit == 0:
		return 100, nil
	}
	return min(limit, mostListed), nil
}

// validateTime refuses a time that cannot be stored, or not be written as text everywhere. field says whose time it is.
// The zero time is in the year 1, and allowed.
func validateTime(field string, t time.Time) error {
	if y := t.UTC().Year(); y < 1 || y > 9999 {
		return fmt.Errorf("kagzi: %s is in the year %d: give a time from the year 1 to 9999", field, y)
	}
	return nil
}

func validateAt(t time.Time) error {
	if t.IsZero() {
		return errors.New("kagzi: At is the zero time: leave the option out")
	}
	return validateTime("At", t)
}

func validatePriority(p int) error {
	if p < 1 || p > 4 {
		return fmt.Errorf("kagzi: Priority is %d: use 1 (first) to 4 (last)", p)
	}
	return nil
}

func validateVersion(v int) error {
	if v < 1 || v > math.MaxInt32 {
		return fmt.Errorf("kagzi: Version is %d: use 1 or more, up to %d", v, math.MaxInt32)
	}
	return nil
}

// validateMetadata refuses tags that cannot be stored or searched. It names the first bad key in order.
func validateMetadata(m map[string]string) error { return validateTags("Metadata", "Metadata key", m) }

// validateTags is validateMetadata for tags that errors call by that name, and whose keys they call key.
func validateTags(name, key string, m map[string]string) error {
	if len(m) > maxMetadataEntries {
		return fmt.Errorf("kagzi: %s has %d entries: at most %d are allowed", name, len(m), maxMetadataEntries)
	}
	size := 0
	for _, k := range slices.Sorted(maps.Keys(m)) {
		v := m[k]
		if k == "" {
			return fmt.Errorf("kagzi: %s is empty: give each value a name", key)
		}
		if err := validateName(key, k); err != nil {
			return err
		}
		if !utf8.ValidString(v) {
			return fmt.Errorf("kagzi: %s value of %s is not valid UTF-8: %s", name, text.Quote(k), text.Quote(v))
		}
		if strings.Contains(v, "\x00") {
			return fmt.Errorf("kagzi: %s value of %s contains a NUL byte, which Postgres cannot store: %s", name,
				text.Quote(k), text.Quote(v))
		}
		size += len(k) + len(v)
	}
	if size > maxMetadataBytes {
		return fmt.Errorf("kagzi: %s has %d bytes: at most %d are allowed; put the rest in the input", name, size,
			maxMetadataBytes)
	}
	return nil
}

// validateStepID refuses an ID that no step can have.
func validateStepID(step string) error {
	switch {
	case step == "":
		return errors.New("kagzi: the step is empty: to begin at the beginning, use Client.Restart")
	case strings.HasPrefix(step, "#") || strings.Contains(step, "/#") ||
		strings.HasSuffix(step, store.CompensationID("")):
		return fmt.Errorf("kagzi: %s is a record of Kagzi's own: give a step of the workflow function",
			text.Quote(step))
	case !utf8.ValidString(step) || strings.IndexFunc(step, unicode.IsControl) >= 0:
		return fmt.Errorf("%w: the name has characters that no step's has", errStepNotFound)
	}
	return nil
}

// Package valid refuses names, times and numbers that cannot be stored, before any SQL. Its errors tell the caller of
// package kagzi what to do.
package valid

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
	// MaxNameBytes is the length of the longest name.
	MaxNameBytes       = 255
	maxMetadataEntries = 64
	maxMetadataBytes   = 16 << 10 // of keys and values together
)

// Name refuses an invalid name of a workflow, queue, signal, schedule or build. field says whose name it is:
// "queue".
func Name(field, s string) error {
	switch {
	case s == "":
		return fmt.Errorf("kagzi: %s is empty", field)
	case len(s) > MaxNameBytes:
		return fmt.Errorf("kagzi: %s %s has %d bytes: at most %d are allowed", field, text.Quote(s), len(s),
			MaxNameBytes)
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

// Share validates the name of a worker's queue, and its share.
func Share(queue string, share int) error {
	if err := Queue(queue); err != nil {
		return err
	}
	if share < 1 || share > maxShare {
		return fmt.Errorf("kagzi: queue %s has a share of %d: give between 1 and %d", text.Quote(queue),
			share, maxShare)
	}
	return nil
}

// Queue is Name for a queue. Its error for an empty name names the default queue.
func Queue(s string) error {
	if s == "" {
		return errors.New(`kagzi: the queue's name is empty: the default one is "default"`)
	}
	return Name("queue", s)
}

// LimitName is Name for a limit on steps.
func LimitName(s string) error {
	if s == "" {
		return errors.New("kagzi: the limit's name is empty: give the one by which steps call it in kagzi.Limit")
	}
	return Name("limit", s)
}

// Workflow is Name for a workflow: a zero Workflow and a zero Call have an empty name.
func Workflow(s string) error {
	if s == "" {
		return errors.New("kagzi: workflow name is empty: name it in kagzi.Define, and make a Call with Workflow.With")
	}
	return Name("workflow name", s)
}

// Namespace is Name for a namespace: in a notification a ':' ends it.
func Namespace(s string) error {
	if err := Name("namespace", s); err != nil {
		return err
	}
	if strings.Contains(s, ":") {
		return fmt.Errorf("kagzi: namespace %s contains ':': use another character, such as '-' or '.'", text.Quote(s))
	}
	return nil
}

// StepName is Name for a step or branch: '/' ends a branch's name, '#' precedes the count
// of a repeated one.
func StepName(field, s string) error {
	if s == "" {
		return fmt.Errorf("kagzi: the %s's name is empty", strings.TrimSuffix(field, " name"))
	}
	if err := Name(field, s); err != nil {
		return err
	}
	if i := strings.IndexAny(s, "#/"); i >= 0 {
		return fmt.Errorf("kagzi: %s %s contains %q: Kagzi uses it in names of its own; use another character, such "+
			"as '-' or ':'",
			field, text.Quote(s), s[i])
	}
	return nil
}

// ExternalID is Name for the caller's ID of a run.
func ExternalID(s string) error {
	if s == "" {
		return fmt.Errorf("kagzi: ID is empty: give what identifies the run, such as an order number, or leave the " +
			"option out")
	}
	return Name("ID", s)
}

// NewID is ExternalID for a run that is started: the runs of consumers have IDs of their own.
func NewID(s string) error {
	if reserved := store.RunOfConsumer(""); strings.HasPrefix(s, reserved) {
		return fmt.Errorf("kagzi: ID %s begins with %q, as the IDs of the runs of consumers do: give another one",
			text.Quote(s), reserved)
	}
	return ExternalID(s)
}

// Timeout refuses a timeout that must be a mistake.
func Timeout(field string, d time.Duration) error {
	if d == 0 {
		return fmt.Errorf("kagzi: %s is 0: leave the option out instead", field)
	}
	return duration.Check(field, d)
}

// MostListed is the most rows that a list asks the database for, whose numbers of rows have 32 bits.
const MostListed = 1 << 30

// Listed returns how many rows a list returns whose filter has the Limit. A larger Limit than MostListed means all
// rows.
func Listed(limit int) (int, error) {
	switch {
	case limit < 0:
		return 0, fmt.Errorf("kagzi: Limit is %d: give a positive number, or leave it out for 100", limit)
	case limit == 0:
		return 100, nil
	}
	return min(limit, MostListed), nil
}

// Time refuses a time that cannot be stored, or not be written as text everywhere. field says whose time it is.
// The zero time is in the year 1, and allowed.
func Time(field string, t time.Time) error {
	if y := t.UTC().Year(); y < 1 || y > 9999 {
		return fmt.Errorf("kagzi: %s is in the year %d: give a time from the year 1 to 9999", field, y)
	}
	return nil
}

func At(t time.Time) error {
	if t.IsZero() {
		return errors.New("kagzi: At is the zero time: leave the option out")
	}
	return Time("At", t)
}

func Priority(p int) error {
	if p < 1 || p > 4 {
		return fmt.Errorf("kagzi: Priority is %d: use 1 (first) to 4 (last)", p)
	}
	return nil
}

func Version(v int) error {
	if v < 1 || v > math.MaxInt32 {
		return fmt.Errorf("kagzi: Version is %d: use 1 or more, up to %d", v, math.MaxInt32)
	}
	return nil
}

// Metadata refuses tags that cannot be stored or searched. It names the first bad key in order.
func Metadata(m map[string]string) error { return Tags("Metadata", "Metadata key", m) }

// Tags is Metadata for tags that errors call by that name, and whose keys they call key.
func Tags(name, key string, m map[string]string) error {
	if len(m) > maxMetadataEntries {
		return fmt.Errorf("kagzi: %s has %d entries: at most %d are allowed", name, len(m), maxMetadataEntries)
	}
	size := 0
	for _, k := range slices.Sorted(maps.Keys(m)) {
		v := m[k]
		if k == "" {
			return fmt.Errorf("kagzi: %s is empty: give each value a name", key)
		}
		if err := Name(key, k); err != nil {
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

// Key is Name for a key or a group.
func Key(option, s string) error {
	if s == "" {
		return fmt.Errorf("kagzi: %s is empty: give what the runs are to be limited by, such as a tenant, or leave "+
			"the option out", option)
	}
	return Name(option, s)
}

// longestKnownID bounds the IDs that Kagzi makes of the paths of steps.
const longestKnownID = 4096

// MessageID is for the ID of a message that is sent. KnownMessageID is for that of any message that a run has.
func MessageID(id string) error {
	if strings.HasPrefix(id, "##") {
		return fmt.Errorf("kagzi: message ID %s: IDs that begin with \"##\" are for messages of Kagzi: use another",
			text.Quote(id))
	}
	return KnownMessageID(id)
}

func KnownMessageID(id string) error {
	switch {
	case id == "":
		return errors.New("kagzi: the message's ID is empty: give what identifies the message, or leave it out")
	case strings.HasPrefix(id, "##"): // Kagzi has made it, and it may be longer
		if len(id) > longestKnownID || !utf8.ValidString(id) || strings.ContainsRune(id, 0) {
			return fmt.Errorf("kagzi: no message has the ID %s", text.Quote(id))
		}
		return nil
	}
	return Name("message ID", id)
}

func Topic(name string) error {
	err := Name("topic", name)
	if err == nil && strings.HasPrefix(name, "kagzi.") {
		err = fmt.Errorf("kagzi: topic %s: names that begin with \"kagzi.\" are for topics in which Kagzi publishes: "+
			"use another", text.Quote(name))
	}
	return err
}

func Consumer(name string) error {
	if name == "" {
		return errors.New("kagzi: the consumer's name is empty: name it in topic.DefineConsumer")
	}
	return Name("consumer name", name)
}

package failure

import (
	"fmt"
	"strings"
	"time"

	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/kind"
)

// A Class says how the engine treats an error.
type Class struct {
	Kind      kind.Kind
	Permanent bool          // another attempt would not help
	Marked    bool          // the error says so itself, or that another one would
	After     time.Duration // the least pause before another attempt; zero: the error sets none
	Cancelled bool          // the error, or one in its chain, reports a cancellation
	// says which exported error is in the chain, to be found in the record of a refusal; empty: none
	Cause string

	Details    []byte // of the error, as they are stored; nil: none
	Undetailed error  // why Details lacks those of the error
}

// Text returns the text under which an error of the class is recorded.
func (c Class) Text(err error) string { return Text(err) + c.note() }

// note says why the details of an error of the class are not recorded; "" if they are, or if it has none.
func (c Class) note() string {
	if c.Undetailed == nil {
		return ""
	}
	return text.Sanitize(fmt.Sprintf("%s%v)", undetailed, c.Undetailed), mostOfNote)
}

const (
	undetailed = " (without its details: "
	mostOfNote = 1 << 10 // bytes
)

// WithoutNote returns a recorded text as it is if the details of the error are recorded.
func WithoutNote(recorded string) string {
	text, _, _ := strings.Cut(recorded, undetailed)
	return text
}

package failure

import (
	"fmt"
	"time"

	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/kind"
)

// A Class says how the engine treats an error.
type Class struct {
	Kind      kind.Kind
	Permanent bool          // another attempt would not help
	After     time.Duration // the least pause before another attempt; zero: the error sets none
	Cancelled bool          // the error, or one in its chain, reports a cancellation
	// says which exported error is in the chain, to be found in the record of a refusal; empty: none
	Cause string

	Details    []byte // of the error, as they are stored; nil: none
	Undetailed error  // why Details lacks those of the error
}

// Text returns the text under which an error of the class is recorded.
func (c Class) Text(err error) string {
	if c.Undetailed == nil {
		return Text(err)
	}
	return text.Sanitize(fmt.Sprintf("%s (without its details: %v)", Text(err), c.Undetailed), text.MaxError)
}

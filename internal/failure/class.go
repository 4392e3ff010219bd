package failure

import (
	"time"

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
}

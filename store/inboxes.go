package store

import (
	"errors"
)

// ErrMessageNotFound reports that the run has no message with this ID.
var ErrMessageNotFound = errors.New("message not found")

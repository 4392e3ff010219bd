package standing

import "errors"

// The causes that end the contexts of steps because the worker gives up their runs.
var (
	ErrLeaseLost = errors.New("kagzi: lease lost: others may execute the run")
	ErrShutdown  = errors.New("kagzi: worker shut down")
)

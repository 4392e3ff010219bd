package kagzitest

import "time"

// StopServer is what Main does before it exits.
var StopServer = stopSharedServer

// SetStuck sets how long Result waits for a run that does not go on.
func (e *Env) SetStuck(d time.Duration) { e.stuck = d }

package kagzitest

import "time"

// StopServer ends the server, as Main does before it exits.
var StopServer = stopSharedServer

// SetStuck sets how long Result waits for a run that makes no progress.
func (e *Env) SetStuck(d time.Duration) { e.stuck = d }
func (e *Env) SetMoves(n int)           { e.moves = n }
func (e *Env) SetUntil(at time.Time)    { e.until = at }

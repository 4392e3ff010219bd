package claims

import "time"

// A state says why the next claim from a queue comes. See the drawing of the package.
type state int

const (
	backlog state = iota // more runs may be due. So a queue begins, and so it stays while a claim is under way.
	idle                 // the claims have taken all that is due, as far as is known
	blocked              // this worker cannot take what is due: others have locked it, limits have no room, or no code
	freed                // runs of this worker have freed keys
	hinted               // a hint came: runs may be due
)

// drained reports whether no due run waits for a slot, as far as is known.
func (s state) drained() bool { return s == idle || s == blocked }

// An outcome says when to claim again from a queue, and why.
type outcome struct {
	state state
	pause time.Duration
	polls bool // the next claim would only look whether hints were lost
}

package claims

import (
	"time"

	"github.com/kagzi/kagzi/store"
)

// A Moment is one time by two clocks.
type Moment struct {
	Now      time.Time // by this process's clock
	Database time.Time // by the database's clock, as the worker estimates it
}

// A Plan says what a worker does next: it sends a claim, or waits.
type Plan struct {
	// Wait says, if no claim is due, for how long none will be unless a hint comes. If it is zero and Claims is false,
	// a claim is due, and waits for a free slot.
	Wait time.Duration

	Claims  bool               // send Request, and give the answer to Answered
	Request store.ClaimRequest // without the worker, its lease, and what only other parts of the worker know
	Rewind  bool               // search beside the claim for runs behind the cursor, and give them to Rewound

	full    bool    // the claim searches all due runs
	hinted  bool    // a hint has caused it
	outcome outcome // set by Answered
}

// An answer is an answer to a claim, and by what it is judged.
type answer struct {
	*Plan
	claim  *store.Claim
	at     Moment        // when it came
	wait   time.Duration // until the next claim, as far as runs without keys are concerned
	spread time.Duration // below a millisecond: it keeps the workers of a fleet from claiming at once for one run
}

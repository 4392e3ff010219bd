package kagzi

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/replay"
	"github.com/kagzi/kagzi/internal/valid"
	"github.com/kagzi/kagzi/kind"
)

// RetryPolicy says when a failed step or run is tried again. A zero field means its default, so the zero RetryPolicy
// means three attempts, 1 s and 2 s apart. That is also the policy of a step without one; a run without one has a
// single attempt. In JSON, durations are text with units from ns to weeks: {"max_attempts": 5, "backoff": "30s",
// "max_backoff": "1 day"}.
type RetryPolicy struct {
	// MaxAttempts is how often the step or run is tried, the first attempt included. Zero means 3. One means no retry
	// after a failure. A worker's death is no failure: a step that it interrupts is executed again, even with one
	// attempt.
	MaxAttempts int
	// Forever removes the limit on attempts; it excludes MaxAttempts. Errors that are not worth another attempt (see
	// [Permanent]) still end the step or run.
	Forever bool
	// Backoff is the wait before the second attempt, at least 1 µs. Zero means 1 s.
	Backoff time.Duration
	// Factor multiplies each wait to give the next one. It is at least 1, which makes all waits as long as the first.
	// Zero means 2.
	Factor float64
	// MaxBackoff is the longest wait, before jitter. Zero means 1 minute, or Backoff if that is longer.
	MaxBackoff time.Duration
	// NoJitter makes the waits exact. Without it each is randomly up to 25 % shorter or longer, so that attempts that
	// failed together do not retry together.
	NoJitter bool
	// Kinds limits retries to failures of these kinds, and NotKinds to those of all other kinds; one excludes the
	// other. A failure that is not worth another attempt is not retried, whatever they say: see [kind.Kind.Retryable].
	Kinds, NotKinds []kind.Kind
}

func (p RetryPolicy) withDefaults() RetryPolicy {
	if !p.Forever {
		p.MaxAttempts = cmp.Or(p.MaxAttempts, 3)
	}
	if p.Backoff == 0 {
		p.Backoff = time.Second
		if p.MaxBackoff != 0 {
			p.Backoff = min(p.Backoff, p.MaxBackoff)
		}
	}
	p.Factor = cmp.Or(p.Factor, 2)
	p.MaxBackoff = cmp.Or(p.MaxBackoff, max(time.Minute, p.Backoff))
	return p
}

func (p RetryPolicy) validate() error {
	switch {
	case p.MaxAttempts < 0:
		return fmt.Errorf("kagzi: RetryPolicy.MaxAttempts is %d: use 1 for no retry, Forever for no limit",
			p.MaxAttempts)
	case p.Forever && p.MaxAttempts != 0:
		return fmt.Errorf("kagzi: RetryPolicy has Forever and MaxAttempts %d: set one of them", p.MaxAttempts)
	case math.IsNaN(p.Factor) || math.IsInf(p.Factor, 0) || p.Factor != 0 && p.Factor < 1:
		return fmt.Errorf("kagzi: RetryPolicy.Factor is %v: use 1 for waits of one length, 2 to double them", p.Factor)
	}
	if err := p.validateKinds(); err != nil {
		return err
	}
	if err := duration.Check("RetryPolicy.Backoff", p.Backoff); err != nil {
		return err
	}
	if err := duration.Check("RetryPolicy.MaxBackoff", p.MaxBackoff); err != nil {
		return err
	}
	if p.MaxBackoff != 0 && p.MaxBackoff < p.Backoff {
		return fmt.Errorf("kagzi: RetryPolicy.MaxBackoff %s is shorter than Backoff %s",
			duration.Format(p.MaxBackoff), duration.Format(p.Backoff))
	}
	return nil
}

func (p RetryPolicy) validateKinds() error {
	if len(p.Kinds) > 0 && len(p.NotKinds) > 0 {
		return errors.New("kagzi: RetryPolicy has Kinds and NotKinds: set one of them")
	}
	for _, k := range slices.Concat(p.Kinds, p.NotKinds) {
		if err := valid.Name("kind of the RetryPolicy", string(k)); err != nil {
			return err
		}
	}
	for _, k := range p.Kinds {
		if !k.Retryable() {
			return fmt.Errorf("kagzi: RetryPolicy.Kinds has %q, which is never retried: return an error of another "+
				"kind, or leave it out", string(k))
		}
	}
	return nil
}

// allows reports whether another attempt may follow after attempt failed ones, of which the last was of the kind.
func (p RetryPolicy) allows(attempt int, last kind.Kind) bool {
	p = p.withDefaults()
	if len(p.Kinds) > 0 && !slices.Contains(p.Kinds, last) || slices.Contains(p.NotKinds, last) {
		return false
	}
	return p.Forever || attempt < p.MaxAttempts
}

// backoff returns the wait after the attempt-th failed attempt, counted from 1. random is in [0, 1).
func (p RetryPolicy) backoff(attempt int, random float64) time.Duration {
	p = p.withDefaults()
	wait := p.MaxBackoff
	// The power is +Inf for a late attempt, so compare before converting.
	if grown := float64(p.Backoff) * math.Pow(p.Factor, float64(max(attempt, 1)-1)); grown < float64(p.MaxBackoff) {
		wait = time.Duration(grown)
	}
	if p.NoJitter {
		return wait
	}
	low, spread := wait/4*3, time.Duration(random*float64(wait/2))
	if spread > math.MaxInt64-low {
		return math.MaxInt64
	}
	return low + spread
}

// retries is a RetryPolicy as the engine asks it.
type retries struct{ p RetryPolicy }

func (r retries) Allows(attempt int, last kind.Kind) bool { return r.p.allows(attempt, last) }
func (r retries) Backoff(attempt int, random float64) time.Duration {
	return r.p.backoff(attempt, random)
}

// runPolicy returns the policy that a run was started with. A run without one is not tried again.
func runPolicy(raw json.RawMessage) (replay.RetryPolicy, error) {
	p := RetryPolicy{MaxAttempts: 1}
	var err error
	if raw != nil {
		p = RetryPolicy{}
		err = json.Unmarshal(raw, &p)
	}
	return retries{p.withDefaults()}, err
}

// retryPolicyJSON is how a RetryPolicy is stored and configured. Durations are raw so that a number is
// refused by name instead of being taken for nanoseconds.
type retryPolicyJSON struct {
	MaxAttempts int             `json:"max_attempts,omitempty"`
	Forever     bool            `json:"forever,omitempty"`
	Backoff     json.RawMessage `json:"backoff,omitempty"`
	Factor      float64         `json:"factor,omitempty"`
	MaxBackoff  json.RawMessage `json:"max_backoff,omitempty"`
	NoJitter    bool            `json:"no_jitter,omitempty"`
	Kinds       []kind.Kind     `json:"kinds,omitempty"`
	NotKinds    []kind.Kind     `json:"not_kinds,omitempty"`
}

// MarshalJSON leaves out zero fields and writes durations as text, such as "30s".
func (p RetryPolicy) MarshalJSON() ([]byte, error) {
	if err := p.validate(); err != nil {
		return nil, err
	}
	return json.Marshal(retryPolicyJSON{
		MaxAttempts: p.MaxAttempts,
		Forever:     p.Forever,
		Backoff:     duration.JSON(p.Backoff),
		Factor:      p.Factor,
		MaxBackoff:  duration.JSON(p.MaxBackoff),
		NoJitter:    p.NoJitter,
		Kinds:       p.Kinds,
		NotKinds:    p.NotKinds,
	})
}

// UnmarshalJSON is the inverse of MarshalJSON. Fields that are missing in data keep their values; unknown names are
// ignored.
func (p *RetryPolicy) UnmarshalJSON(data []byte) error {
	raw := retryPolicyJSON{
		MaxAttempts: p.MaxAttempts, Forever: p.Forever, Factor: p.Factor, NoJitter: p.NoJitter, Kinds: p.Kinds,
		NotKinds: p.NotKinds,
	}
	if err := json.Unmarshal(data, &raw); err != nil {
		return failure.Wrap(err, "retry policy")
	}
	backoff, err := duration.OfJSON("retry policy: backoff", raw.Backoff, p.Backoff)
	if err != nil {
		return err
	}
	maxBackoff, err := duration.OfJSON("retry policy: max_backoff", raw.MaxBackoff, p.MaxBackoff)
	if err != nil {
		return err
	}
	*p = RetryPolicy{
		raw.MaxAttempts, raw.Forever, backoff, raw.Factor, maxBackoff, raw.NoJitter, raw.Kinds, raw.NotKinds,
	}
	return nil
}

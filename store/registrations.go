package store

import (
	"encoding/json"
	"errors"
	"time"
)

// compensationSuffix ends the ID of a compensation's record. The ID of the step that it compensates precedes it.
const compensationSuffix = "#compensation"

// CompensationID returns the ID of the compensation for a step, or for a name of that form.
func CompensationID(step string) string { return step + compensationSuffix }

// A Compensation is a run to start if the run that registers it does not complete. It has no external ID.
type Compensation struct {
	Spec                // without a queue, a priority or headers it has those of the run that registers it
	Delay time.Duration `json:"delay,omitempty"`
	Input []byte        `json:"-"`
}

// Conditions on a run q. registered: it has a compensation to run. registers: it has one, or a step under way may
// register one.
const (
	registers  = openRegistration + ` LIMIT 1) x) = 1`
	registered = openRegistration + ` AND s.call IS NOT NULL LIMIT 1) x) = 1`

	openRegistration = `(SELECT count(*) FROM (
			SELECT FROM kagzi.step_runs s
			WHERE s.run_id = q.run_id AND s.namespace_id = $1 AND s.step_kind = 'COMPENSATION' AND s.status = 'RUNNING'`
)

// ErrCompensated reports that the compensations of the run have run.
var ErrCompensated = errors.New("run was compensated")

// call returns the run to start as JSON, without its input; "" for none.
func (c *Compensation) call() string {
	if c == nil {
		return ""
	}
	call, _ := json.Marshal(c) // names, numbers and JSON
	return string(call)
}

func (c *Compensation) input() []byte {
	if c == nil {
		return nil
	}
	return c.Input
}

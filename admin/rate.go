package admin

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/store"
)

// A Rate is a number of starts in a time, by the database's clock: Rate{Starts: 10, Per: time.Second}. Starts are
// spaced evenly: ten in a second are one every 100 ms. Its JSON has Per as text: {"starts": 10, "per": "1s"}.
type Rate struct {
	Starts int           // in Per; zero, with a zero Per: any number
	Per    time.Duration // zero: a second
	// how many starts may come at once after a time with fewer; zero: 1, so that each start keeps its distance to the
	// one before
	Burst int
}

// every returns the time between two starts, zero for a zero Rate. It is rounded up, so that the rate is never
// exceeded.
func (r Rate) every() time.Duration {
	if r.Starts == 0 {
		return 0
	}
	unit := time.Duration(r.Starts) * time.Microsecond
	return (r.per() + unit - 1) / unit * time.Microsecond
}

func (r Rate) per() time.Duration {
	if r.Per == 0 {
		return time.Second
	}
	return r.Per
}

// validate refuses a rate that must be a mistake. field says whose it is: "StepLimit.Rate".
func (r Rate) validate(field string) error {
	const most = 1_000_000
	switch {
	case r == Rate{}:
		return nil
	case r.Starts < 1 || r.Starts > most:
		return fmt.Errorf("kagzi: %s.Starts is %d: give 1 to %d, or a zero Rate for no rate", field, r.Starts, most)
	case r.Burst < 0 || r.Burst > most:
		return fmt.Errorf("kagzi: %s.Burst is %d: give 1 to %d", field, r.Burst, most)
	}
	if r.per() > 366*24*time.Hour {
		return fmt.Errorf("kagzi: %s.Per is %s: give at most a year", field, r.Per)
	}
	if err := duration.Check(field+".Per", r.Per); err != nil {
		return err
	}
	if r.per() < time.Duration(r.Starts)*time.Microsecond {
		return fmt.Errorf("kagzi: %s is %d starts in %s: at most one in a microsecond is possible", field,
			r.Starts, r.per())
	}
	if year := 366 * 24 * time.Hour; r.Burst > 1 && time.Duration(r.Burst-1) > year/r.every() {
		return fmt.Errorf("kagzi: %s.Burst is %d starts, which take more than a year to make up for: give a "+
			"smaller one", field, r.Burst)
	}
	return nil
}

// stored returns the rate as the store knows it.
func (r Rate) stored() store.Rate {
	if r.Starts == 0 {
		return store.Rate{}
	}
	return store.Rate{Interval: r.every(), Burst: max(r.Burst, 1)}
}

// rateOf is the inverse of stored: one start in the time between two.
func rateOf(r store.Rate) Rate {
	if r.Interval == 0 {
		return Rate{}
	}
	return Rate{Starts: 1, Per: r.Interval, Burst: r.Burst}
}

type rateJSON struct {
	Starts int    `json:"starts"`
	Per    string `json:"per,omitempty"`
	Burst  int    `json:"burst,omitempty"`
}

// MarshalJSON writes the JSON that Rate documents.
func (r Rate) MarshalJSON() ([]byte, error) {
	return json.Marshal(rateJSON{r.Starts, duration.Text(r.Per), r.Burst})
}

// UnmarshalJSON is the inverse of MarshalJSON.
func (r *Rate) UnmarshalJSON(data []byte) error {
	var in rateJSON
	var per time.Duration
	err := json.Unmarshal(data, &in)
	if err == nil {
		per, err = duration.OfText(in.Per)
	}
	if err != nil {
		return failure.Wrap(err, "rate as JSON")
	}
	*r = Rate{in.Starts, per, in.Burst}
	return nil
}

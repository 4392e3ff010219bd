package kind

import "github.com/kagzi/kagzi/internal/details"

// WithDetails returns err with details for programs, such as the reason of a decline or the ID of another record. They
// go with the failure from a step to its workflow, from a child to its parent, and from a run to those that wait for
// its result: see [Details].
//
// The text and the kind of the error stay. A nil error stays nil.
//
// The client's Codec and Sealer encode the details. If they fail, or the details are larger than
// ClientConfig.MaxPayload, the failure is recorded without details, and its text says so.
func WithDetails(err error, with any) error {
	if err == nil {
		return nil
	}
	return details.With(err, with)
}

// Details returns the details of the first error in err's chain that has some. It reports false if there are none, or
// if they do not decode into a T. JSON decodes into a T what it can: check the kind of the error first.
//
// In a workflow, details of a record that do not open, or do not decode into a T, quarantine the run, as a result does.
// Details that no record has are encoded and decoded as JSON.
func Details[T any](err error) (with T, ok bool) {
	found := details.In(err)
	if found == nil {
		return with, false
	}
	if with, ok := found.Value().(T); ok {
		return with, true
	}
	if err := found.Into(&with); err != nil {
		var none T
		return none, false
	}
	return with, true
}

package request

import (
	"cmp"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/valid"
	"github.com/kagzi/kagzi/kind"
)

// A Request is a contract, like a kagzi.Signal: a name, and the types of the payload and of the answer. Declare it
// once, as a package variable that askers and workflows import. A request and a signal may have the same name: they
// have nothing to do with each other.
type Request[In, Out any] struct {
	signal kagzi.Signal[In] // a request is a message like a signal's, under a name of its own
	checks []func(In) error
}

// Define names a request. The rules of [kagzi.Step]'s names apply. Functions that use the request return an error for
// a bad name.
//
// A check says why a payload is invalid. It is called before anything is stored, and again where the run reads the
// request, maybe by another version of the program.
func Define[In, Out any](name string, checks ...func(In) error) Request[In, Out] {
	return Request[In, Out]{kagzi.DefineSignal[In](name), checks}
}

// Name returns the request's name with its key, as [kagzi.Signal.Name] does.
func (r Request[In, Out]) Name() string { return r.signal.Name() }

// For returns the request about one thing of several, as [kagzi.Signal.For] does.
func (r Request[In, Out]) For(key string) Request[In, Out] {
	r.signal = r.signal.For(key)
	return r
}

// With returns a question with the payload, and does not send it.
func (r Request[In, Out]) With(in In) Question[Out] {
	q := Question[Out]{r.signal.With(in)}
	m := q.message.Core()
	m.Request = true
	if err := r.check(in); err != nil {
		m.Refused = failure.Of(cmp.Or(declared(err), kind.Validation), failure.Wrap(err, "request %q", r.Name()))
	}
	return q
}

// check returns the error of the first check that refuses the payload.
func (r Request[In, Out]) check(in In) error {
	for _, check := range r.checks {
		if err := check(in); err != nil {
			return err
		}
	}
	return nil
}

// declared returns the kind that err has been given, empty if it has none.
func declared(err error) kind.Kind {
	if k := kagzi.KindOf(err); k != kind.Unknown {
		return k
	}
	return ""
}

// A Question is a request with its payload: see [Request.With].
type Question[Out any] struct{ message kagzi.Message }

// WithID returns q with an ID of at most 255 bytes. Asked again with its ID, the run does not get another request: the
// caller gets the first answer, for as long as the run is kept.
func (q Question[Out]) WithID(id kagzi.ID) Question[Out] { return Question[Out]{q.message.WithID(id)} }

// WithHeaders returns q with headers, in addition to those that it has: see [kagzi.Headers]. [Received] has them.
func (q Question[Out]) WithHeaders(h kagzi.Headers) Question[Out] {
	return Question[Out]{q.message.WithHeaders(h)}
}

// Within returns q with a time, counted from when it is stored, after which the run does not read it any more. Then
// [Ask] returns an error of [kind.Timeout]. While a worker executes the run, it decides that when it comes to it.
func (q Question[Out]) Within(d time.Duration) Question[Out] {
	m := q.message.Core()
	m.Within = d
	if err := valid.Timeout("Within", d); err != nil {
		m.Refused = cmp.Or(m.Refused, err)
	}
	return q
}

// name returns the name of the request with its key.
func (q *Question[Out]) name() string { return q.message.Core().Signal.String() }

// A Target is a run that a question is sent to: a [kagzi.Ref], or a [kagzi.Call], which starts a run with the question
// unless one of its [kagzi.ID] is active.
type Target interface {
	Core() core.Ref // for Kagzi's own packages
}

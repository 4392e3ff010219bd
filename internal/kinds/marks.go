package kinds

import (
	"time"

	"github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/internal/failure"
)

// A marked error says whether, and when, another attempt is worth it.
type marked struct {
	err       error
	permanent bool
	after     time.Duration
}

func (e *marked) Error() string { return e.err.Error() }

func (e *marked) Unwrap() error { return e.err }

// Permanent marks err as not worth another attempt. Nil stays nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &marked{err: err, permanent: true}
}

// RetryAfter marks err as worth another attempt after at least d. Nil stays nil.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &marked{err: err, after: min(max(d, 0), duration.Longest)}
}

// IsPermanent reports whether err is not worth another attempt: by its outermost mark, else by its kind.
func IsPermanent(err error) bool {
	if err == nil {
		return false
	}
	if m, ok := outermost(err); ok {
		return m.permanent
	}
	return !Of(err).Retryable()
}

// IsMarked reports whether the application has marked err, by Permanent or RetryAfter.
func IsMarked(err error) bool {
	defer func() { _ = recover() }() // a method of a user's error
	return failure.Walk(err, func(err error) bool {
		_, ok := err.(*marked)
		return ok
	})
}

// After returns the wait that err's outermost mark asks for.
func After(err error) (time.Duration, bool) {
	m, ok := outermost(err)
	return m.after, ok && !m.permanent
}

func outermost(err error) (mark marked, found bool) {
	defer func() {
		if recover() != nil { // a method of a user's error
			mark, found = marked{}, false
		}
	}()
	found = failure.Walk(err, func(err error) bool {
		switch e := err.(type) {
		case *marked:
			mark = *e
			return true
		case *failure.Error:
			mark.permanent = e.Permanent
			return e.Permanent
		}
		return false
	})
	return mark, found
}

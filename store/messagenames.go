package store

import "strings"

// requestMark precedes the names of requests. The names of signals do not begin with it, so no wait for a signal takes
// a request, and no wait for a request takes a signal.
const requestMark = "#"

// RequestName returns the name under which messages with requests of that name are stored.
func RequestName(name string) string { return requestMark + name }

// AnswerName returns the name under which a run gets the answer to the request of its step.
func AnswerName(step string) string { return requestMark + requestMark + step }

// MessageName returns the name of the signal or the request, or the step of the answer, that a message is stored under,
// and which of these it is.
func MessageName(stored string) (name, of string) {
	name, request := strings.CutPrefix(stored, requestMark)
	name, answer := strings.CutPrefix(name, requestMark)
	switch {
	case answer:
		return name, "answer"
	case request:
		return name, "request"
	}
	return name, "signal"
}

// Asked is what an execution knows of a request that it has read.
type Asked struct {
	Name    string // of the message, as it is stored
	ID      string // of the message; empty: an earlier execution has read it
	ReplyTo string // the run and the step that get the answer as a message; empty: none, or not known
}

package ui

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/kagzi/kagzi"
)

// traceLinks make the addresses of traces: Config.TraceURL.
type traceLinks string

// A traceLink leads to the trace within which a run was started.
type traceLink struct{ ID, To string }

// traceParent is the header traceparent, with the ID of the trace: https://www.w3.org/TR/trace-context/
var traceParent = regexp.MustCompile(`^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}`)

const tracePlace = "{trace}"

// valid returns the error of a Config's TraceURL.
func (l traceLinks) valid() error {
	if l == "" {
		return nil
	}
	at, err := url.Parse(strings.ReplaceAll(string(l), tracePlace, "0"))
	if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "" ||
		!strings.Contains(string(l), tracePlace) {
		return fmt.Errorf(`ui: Config.TraceURL is %q: give an address with {trace} in it, such as `+
			`"https://traces.example.com/trace/{trace}"`, string(l))
	}
	return nil
}

// of returns the link to the trace that the headers of a run name; the zero one if there is none.
func (l traceLinks) of(headers kagzi.Headers) (t traceLink) {
	found := traceParent.FindStringSubmatch(headers["traceparent"])
	if l == "" || found == nil || strings.Trim(found[1], "0") == "" {
		return t
	}
	return traceLink{found[1], strings.ReplaceAll(string(l), tracePlace, found[1])}
}

package ui

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kagzi/kagzi"
)

// A wholeError is what the sentence about a failure leaves out: an error of several lines, such as a stack, or a long
// one.
type wholeError struct {
	Step    string // whose error it is; empty for that of the run's function
	Attempt int    // of the step
	Text    string
}

// longError is how long an error may be that a sentence has in full.
const longError = 300

// wholeErrorOf returns the error of a run that failed or was cancelled, if a sentence does not have all of it: that of
// the step that it names, whose lines it leaves out, else its own. The zero one says that a sentence has it all.
func wholeErrorOf(run kagzi.RunInfo, attempts []kagzi.StepAttempt) (whole wholeError) {
	text := strings.TrimSpace(run.Error)
	if text == "" || !run.Status.Ended() {
		return whole
	}
	for _, a := range slices.Backward(attempts) {
		ofStep := fmt.Sprintf("step %q: ", a.Step)
		if a.Status == kagzi.StatusFailed && isLong(a.Error) && strings.Contains(text, ofStep) {
			return wholeError{a.Step, a.Attempt, strings.TrimSpace(a.Error)}
		}
	}
	if isLong(text) {
		whole.Text = text
	}
	return whole
}

// isLong reports whether a sentence would leave out some of the error.
func isLong(text string) bool {
	text = strings.TrimSpace(text)
	return strings.Contains(text, "\n") || len([]rune(text)) > longError
}

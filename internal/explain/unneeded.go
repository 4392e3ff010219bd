package explain

import "github.com/kagzi/kagzi"

// NotNeeded reports whether an attempt of a run with that status is a compensation that was not needed, because the run
// completed. Its status is CANCELLED, and the time from its registration to the run's end is no duration.
func NotNeeded(run kagzi.Status, a kagzi.StepAttempt) bool {
	return run == kagzi.StatusCompleted && a.Type == "COMPENSATION" && a.Status == kagzi.StatusCancelled
}

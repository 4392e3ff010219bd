package replay

// execution returns the one that the branch belongs to.
func (b *Branch) execution() *Run { return b.e }

// SetProgress replaces the run's progress. It is written with the next write of the run, or by itself within
// writePause. A branch that passes recorded operations says nothing: its run has said so before. Any goroutine may call
// it, also after the end of the execution.
func (b *Branch) SetProgress(text string, fraction *float64) {
	if b.logs() && !b.hasLost() && b.e.writesRecords() {
		b.e.setProgress(text, fraction)
	}
}

// Consume makes the run one of a consumer, before its function begins.
func (b *Branch) Consume(consumer string, topics []string) {
	b.e.consume(newConsumption(consumer, topics))
}

// Consumption returns that of the run; nil if it is no consumer's.
func (b *Branch) Consumption() *Consumption { return b.e.consumed() }

// Nondeterministic quarantines the branch's run, because code and history contradict each other at the step, and exits
// the goroutine.
func (b *Branch) Nondeterministic(step, format string, args ...any) {
	b.e.nondeterministic(step, format, args...)
}

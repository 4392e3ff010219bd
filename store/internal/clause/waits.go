package clause

// The waiting_on that statements set and read, as JSON: see package waits.
const (
	PreviousRun = `[{"kind": "previous run"}]`
	Recovery    = `[{"kind": "recovery"}]`

	// BeingDeleted is that of a run whose steps are deleted in several transactions. The first of them sets it. From
	// then on the run cannot be resumed, because it would execute the deleted steps again. The run is deleted even if
	// the retention was extended since.
	BeingDeleted = `[{"kind": "deletion"}]`
)

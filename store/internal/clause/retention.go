package clause

// BeingDeleted is the waiting_on of a run whose steps are deleted in several transactions. The first of them sets it.
// From then on the run cannot be resumed, because it would execute the deleted steps again. The run is deleted even if
// the retention was extended since.
const BeingDeleted = "deletion"

package clause

// The ends of what a run waits for whose next step was refused. The statement of Health knows them, too.
const (
	StartRefused = "its start is refused"
	EndRefused   = "its end is refused"
)

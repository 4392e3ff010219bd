package replay

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/plainjson"
	"github.com/kagzi/kagzi/store"
)

// An identity says which run is executed, as the application knows it. It does not change.
type identity struct {
	run     *store.ClaimedRun
	id      string            // the run's
	headers map[string]string // nil if the run has none
}

// decode decodes the headers.
func (i *identity) decode() {
	_ = plainjson.Unmarshal(i.run.Headers, &i.headers) // the client wrote a map of strings
}

func (i *identity) RunID() string { return i.id }

// ExternalID returns the ID that the run has for the application; empty if it has none.
func (i *identity) ExternalID() string { return i.run.ExternalID }

// FireTime returns the tick that the run stands for, zero if no schedule has fired it.
func (i *identity) FireTime() time.Time { return i.run.FireAt.UTC() }

// Headers returns the run's headers, nil if it has none. They must not be changed.
func (i *identity) Headers() map[string]string { return i.headers }

// keyOf returns what distinguishes the operation with the ID from those of the run's other epochs.
func (i *identity) keyOf(id string) string { return store.StepKey(i.run.Epoch, id) }

func (i *identity) Attempt() int { return i.run.Attempts + 1 }

// Lease is for tests: see testhook.Branch.
func (i *identity) Lease() uuid.UUID { return i.run.Lease }

// A StepIdentity names one attempt of one step.
type StepIdentity struct {
	Run      string
	Workflow string
	Step     string
	Key      string // that no other step of the run has, in any epoch
	Attempt  int
	Try      int               // counts the calls of the function, also those of one attempt
	Headers  map[string]string // of the run: not to be changed
	By       Reporter          // the step that it is an attempt of
}

// A Reporter is told what the function of a step does. Any goroutine may call it, also after the end of the attempt.
type Reporter interface {
	SetProgress(text string, fraction *float64) // see Branch
	AwaitsRun(id uuid.UUID) (ended func())      // see Branch
	// SaveCheckpoint keeps data for the attempts that follow. try is that of the caller's identity, and ctx descends
	// from its context.
	SaveCheckpoint(ctx context.Context, try int, data []byte) error
	// LastCheckpoint returns the last data that an attempt has kept; nil: there is none.
	LastCheckpoint(ctx context.Context, try int) ([]byte, error)
}

// Package model has a small model of the store: the runs of one namespace in memory, and what each verb does to them. A
// verb is a call of the store, such as claim, finish or cancel. The test of the package, `go test .`, sends random
// verbs to the store and to the model, and compares.
//
// The model knows no SQL, no locks and no clock. When a run is due is one of five words, and the test moves the times
// in the tables by SQL. Of an order in time, such as that of a key's runs, the test reads the times and gives them to
// the model.
//
// Not part of it are topics and consumers, windows and batches of starts, limits on steps, weights of keys, several
// queues, and retention.
package model

import (
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/store"
)

// A Model holds the runs of a namespace.
type Model struct {
	table
	Pauses    map[Work]Pause
	Queue     Queue
	Keys      map[store.Key]KeyLimit
	Schedules map[string]Schedule
	Hour      int    // the last tick that has come
	bucket    Bucket // of the queue
	buckets   map[store.Key]Bucket

	// StartedFor returns the run that the store has started for the compensation of a run with this position.
	StartedFor func(run uuid.UUID, position int64) uuid.UUID
}

// New returns an empty model.
func New() *Model {
	return &Model{
		table:  table{Runs: map[uuid.UUID]*Run{}, Offline: map[uuid.UUID]bool{}},
		Pauses: map[Work]Pause{}, Schedules: map[string]Schedule{}, Hour: 1, Keys: map[store.Key]KeyLimit{},
		buckets: map[store.Key]Bucket{},
	}
}

// Clone returns a copy that shares nothing with m.
func (m *Model) Clone() *Model {
	c := *m
	c.Runs, c.Order, c.Offline, c.Pauses, c.Schedules, c.Keys, c.buckets = map[uuid.UUID]*Run{}, slices.Clone(m.Order),
		maps.Clone(m.Offline), maps.Clone(m.Pauses), maps.Clone(m.Schedules), maps.Clone(m.Keys), maps.Clone(m.buckets)
	for id, r := range m.Runs {
		q := *r
		q.Messages, q.Steps = slices.Clone(r.Messages), map[string][]Attempt{}
		for step, attempts := range r.Steps {
			q.Steps[step] = slices.Clone(attempts)
		}
		c.Runs[id] = &q
	}
	return &c
}

package namespaces

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/outage"
)

// Databases execute the runs of all namespaces of several databases, with a [Worker] for each of these.
type Databases struct {
	workers map[string]*Worker
	route   func(namespace string) string
}

// NewDatabases returns the workers of the databases to which the pools lead, by names that you give them. route returns
// the name of the database that has a namespace. It is called often, and must not block: look it up in memory. It may
// change its answer when a namespace has moved (see [Move]). For a namespace that is in none of them, it returns "".
//
// Each database has its own slots: cfg.Worker.MaxConcurrent in each. NewDatabases does no I/O.
func NewDatabases(pools map[string]*pgxpool.Pool, route func(namespace string) string, cfg Config) (*Databases, error) {
	switch {
	case len(pools) == 0:
		return nil, errors.New("kagzi: namespaces: there is no database: give at least one pool")
	case route == nil:
		return nil, errors.New("kagzi: namespaces: route is nil: give a function that returns the name of a " +
			"namespace's database")
	}
	d := &Databases{map[string]*Worker{}, route}
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		if name == "" {
			return nil, errors.New("kagzi: namespaces: a database has no name: \"\" is the answer of route for a " +
				"namespace that is nowhere")
		}
		one := cfg
		one.Serve = func(namespace string) bool {
			return route(namespace) == name && (cfg.Serve == nil || cfg.Serve(namespace))
		}
		w, err := NewWorker(pools[name], one)
		if err != nil {
			return nil, fmt.Errorf("database %s: %w", name, err)
		}
		w.log = w.log.With("database", name)
		d.workers[name] = w
	}
	return d, nil
}

// Worker returns the worker of a database, nil if there is no such database.
func (d *Databases) Worker(database string) *Worker {
	if d == nil {
		return nil
	}
	return d.workers[database]
}

// Client returns the client of a namespace, in the database that route names now. Ask for it again before each use:
// after a move, it is another one.
func (d *Databases) Client(namespace string) (*kagzi.Client, error) {
	if d == nil || d.workers == nil {
		return nil, errNoDatabases
	}
	name := d.route(namespace)
	w := d.workers[name]
	if w == nil {
		return nil, fmt.Errorf("kagzi: namespaces: route says that %q is in database %q, which is none of %q",
			namespace, name, slices.Sorted(maps.Keys(d.workers)))
	}
	return w.Client(namespace)
}

// A Place says which database has rows of a namespace.
type Place struct {
	Database  string `json:"database"`
	Namespace string `json:"namespace"`
}

// List returns the namespaces of all databases, as [List] does, ordered by the names of databases and namespaces. It
// returns those of the databases that answer, and an error about the others.
func (d *Databases) List(ctx context.Context) ([]Place, error) {
	if d == nil || d.workers == nil {
		return nil, errNoDatabases
	}
	names := slices.Sorted(maps.Keys(d.workers))
	found, failed := make([][]string, len(names)), make([]error, len(names))
	var lists sync.WaitGroup
	for i, name := range names {
		lists.Go(func() {
			if found[i], failed[i] = List(ctx, d.workers[name].pool); failed[i] != nil {
				failed[i] = fmt.Errorf("database %s: %w", name, failed[i])
			}
		})
	}
	lists.Wait()
	var all []Place
	for i, name := range names {
		for _, namespace := range found[i] {
			all = append(all, Place{name, namespace})
		}
	}
	return all, errors.Join(failed...)
}

// Run executes runs until ctx ends, as [Worker.Run] does, and then returns nil. If one of the databases does not
// answer, or has a schema that does not fit, only its own namespaces wait: Run logs that, and tries again after some
// seconds.
//
// Run returns an error if none of the databases could be served at the first try.
func (d *Databases) Run(ctx context.Context) error {
	if d == nil || d.workers == nil {
		return errNoDatabases
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var mu sync.Mutex
	var failed []error // the first tries
	refused := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if failed = append(failed, err); len(failed) == len(d.workers) {
			stop()
		}
	}
	var running sync.WaitGroup
	for name, w := range d.workers {
		running.Go(func() {
			w.keepRunning(ctx, func(err error) { refused(fmt.Errorf("database %s: %w", name, err)) })
		})
	}
	running.Wait()
	if len(failed) == len(d.workers) {
		return errors.Join(failed...)
	}
	return nil
}

// keepRunning runs the worker until ctx ends, again after each failure. It calls refused if the first try has failed.
func (w *Worker) keepRunning(ctx context.Context, refused func(error)) {
	for tries := 0; ; tries++ {
		err := w.Run(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		w.log.Error("kagzi: the namespaces of a database cannot be served; those of others go on", "error", err)
		if tries == 0 {
			refused(err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(outage.Backoff(tries)):
		}
	}
}

var errNoDatabases = errors.New("kagzi: namespaces: the Databases are nil or a zero value: make them with " +
	"NewDatabases, and check its error")

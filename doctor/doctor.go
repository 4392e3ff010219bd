// Package doctor examines the database that Kagzi uses, and advises how to fix the problems that it finds.
//
// [Examine] is more thorough than admin.Client.Health, which asks whether the work goes on. Call it by hand, in a
// deploy's check, or when things are slow.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/store/inspect"
)

// A Severity says how much an [Advice] matters.
type Severity string

// The severities, from most to least.
const (
	Problem Severity = "problem" // Kagzi does not work, or does not keep a promise
	Warning Severity = "warning" // it works, but slower than it could, or not for long
	Unseen  Severity = "unseen"  // it could not be examined, for example because this user lacks a right
	Fine    Severity = "fine"
)

var severities = []Severity{Problem, Warning, Unseen, Fine}

// An Advice is one finding of [Examine].
type Advice struct {
	// Topic is the object examined: "server", "schema", "indexes", "durability", "settings", "pooler", "pool", "clock",
	// "snapshots", "idle transactions", "autovacuum", "tables", "distribution" or "notifications".
	Topic    string   `json:"topic"`
	Severity Severity `json:"severity"`
	Finding  string   `json:"finding"`      // a sentence, with the figure
	Do       string   `json:"do,omitempty"` // the statement or setting that helps; "" if there is nothing to do
}

// String returns the advice in one line.
func (a Advice) String() string {
	text := fmt.Sprintf("%s: %s: %s", a.Severity, a.Topic, a.Finding)
	if a.Do != "" {
		text += " → " + a.Do
	}
	return text
}

const (
	examineTimeout = 30 * time.Second
	hearTimeout    = 3 * time.Second // for a notification
	namedAtMost    = 5               // tables or indexes in one Finding
)

// Examine checks everything that Kagzi needs of pool's database. The result has at least one Advice about each topic;
// the worst come first, and those that are Fine last. Examine changes nothing and needs no special rights: topics that
// this user may not see are Unseen. It takes a few seconds at most, and returns an error if the database does not
// answer, or if ctx ends.
func Examine(ctx context.Context, pool *pgxpool.Pool) ([]Advice, error) {
	if pool == nil {
		return nil, errors.New("kagzi: doctor: the pool is nil: make one with pgxpool.New")
	}
	ctx, cancel := context.WithTimeout(ctx, examineTimeout)
	defer cancel()
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("kagzi: doctor: %w", err)
	}
	defer conn.Release()
	e := &examination{pool: pool, db: conn}
	if e.server, err = inspect.AskServer(ctx, conn); err != nil {
		return nil, fmt.Errorf("kagzi: doctor: %w", err)
	}
	e.checkServer()
	for _, topic := range []struct {
		name  string
		check func(context.Context) error
	}{ // in this order: the later checks use what the earlier ones found
		{"schema", e.schema},
		{"durability", e.durability},
		{"settings", e.settings},
		{"pooler", e.pooler},
		{"pool", e.connections},
		{"clock", e.clock},
		{"snapshots", e.snapshots},
		{"autovacuum", e.autovacuum},
		{"distribution", e.distribution},
		{"tables", e.tables},
		{"indexes", e.indexes},
		{"notifications", e.notifications},
	} {
		if err := topic.check(ctx); err != nil {
			if ctx.Err() != nil || conn.Conn().IsClosed() {
				return nil, fmt.Errorf("kagzi: doctor: %w", err)
			}
			e.add(topic.name, Unseen, "", "Could not be checked: %s.", store.Reason(err))
		}
	}
	slices.SortStableFunc(e.found, func(a, b Advice) int {
		return cmp.Compare(slices.Index(severities, a.Severity), slices.Index(severities, b.Severity))
	})
	return e.found, nil
}

// An examination is the state of one Examine.
type examination struct {
	pool *pgxpool.Pool
	db   *pgxpool.Conn

	server inspect.Server
	// pooler sets it: the backend that answers does not have the process ID that the connection was told
	pooled      bool
	migrated    bool   // schema sets it: the tables exist, and this user may read their version
	newer       bool   // schema sets it: a newer program has migrated the database
	grants      string // schema sets it: the statements that let this user read the schema's version; "" if it may
	distributed bool   // distribution sets it: Citus has distributed the tables, so those of this server are empty

	found []Advice
}

// add adds an advice. It formats the finding, but not do.
func (e *examination) add(topic string, severity Severity, do, format string, args ...any) {
	e.found = append(e.found, Advice{topic, severity, fmt.Sprintf(format, args...), do})
}

// addFine adds that a topic is Fine, unless there is advice about it that is not Unseen.
func (e *examination) addFine(topic, format string, args ...any) {
	if !slices.ContainsFunc(e.found, func(a Advice) bool { return a.Topic == topic && a.Severity != Unseen }) {
		e.add(topic, Fine, "", format, args...)
	}
}

// addNoTables adds an advice to a topic about the tables if these are missing, or if this user may not see them.
func (e *examination) addNoTables(topic string) {
	if e.grants != "" {
		e.add(topic, Unseen, e.grants, "This user lacks the right to see it.")
		return
	}
	e.addFine(topic, "There are none yet.")
}

package kagzi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/migrations"
	"github.com/kagzi/kagzi/store"
)

// A Severity says how much an [Advice] matters.
type Severity string

// The severities, from most to least.
const (
	SeverityProblem Severity = "problem" // Kagzi does not work, or does not keep a promise
	SeverityWarning Severity = "warning" // it works, but slower than it could, or not for long
	SeverityUnseen  Severity = "unseen"  // this user may not look
	SeverityFine    Severity = "fine"
)

var severities = []Severity{SeverityProblem, SeverityWarning, SeverityUnseen, SeverityFine}

// An Advice is one thing that [Doctor] found.
type Advice struct {
	// Topic is what was looked at: "server", "schema", "indexes", "durability", "settings", "pooler", "pool", "clock",
	// "snapshots", "idle transactions", "autovacuum", "tables", "distribution" or "notifications".
	Topic    string   `json:"topic"`
	Severity Severity `json:"severity"`
	Finding  string   `json:"finding"`      // a sentence, with the figure
	Do       string   `json:"do,omitempty"` // the statement or setting that helps; "" if nothing need be done
}

// String returns the advice in one line.
func (a Advice) String() string {
	text := fmt.Sprintf("%s: %s: %s", a.Severity, a.Topic, a.Finding)
	if a.Do != "" {
		text += " → " + a.Do
	}
	return text
}

// doctorTimeout bounds Doctor, and hearTimeout in it the wait for a notification.
const (
	doctorTimeout = 30 * time.Second
	hearTimeout   = 3 * time.Second
)

// Doctor looks at what Kagzi needs of pool's database, more thoroughly than [Client.Health], and says what to do. Each
// topic has at least one Advice; the worst come first, and what is fine last. It changes nothing. It needs no special
// rights: what this user may not see is SeverityUnseen. It takes some seconds at the most, and returns an error if the
// database does not answer, or if ctx ends.
func Doctor(ctx context.Context, pool *pgxpool.Pool) ([]Advice, error) {
	if pool == nil {
		return nil, errors.New("kagzi: doctor: the pool is nil: make one with pgxpool.New")
	}
	ctx, cancel := context.WithTimeout(ctx, doctorTimeout)
	defer cancel()
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, failed(err, "doctor")
	}
	defer conn.Release()
	d := &doctor{pool: pool, db: conn}
	if d.server, err = store.AskServer(ctx, conn); err != nil {
		return nil, failed(err, "doctor")
	}
	d.aboutServer()
	for _, look := range []struct {
		topic string
		at    func(context.Context) error
	}{
		{"schema", d.schema},
		{"durability", d.durability},
		{"settings", d.settings},
		{"pooler", d.pooler},
		{"pool", d.connections},
		{"clock", d.clock},
		{"snapshots", d.snapshots},
		{"autovacuum", d.autovacuum},
		{"distribution", d.distribution},
		{"tables", d.tables},
		{"indexes", d.indexes},
		{"notifications", d.notifications},
	} {
		if err := look.at(ctx); err != nil {
			if ctx.Err() != nil || conn.Conn().IsClosed() {
				return nil, failed(err, "doctor")
			}
			d.say(look.topic, SeverityUnseen, "", "Could not be looked at: %s.", store.Reason(err))
		}
	}
	slices.SortStableFunc(d.found, func(a, b Advice) int {
		return cmp.Compare(slices.Index(severities, a.Severity), slices.Index(severities, b.Severity))
	})
	return d.found, nil
}

// A doctor is one Doctor under way.
type doctor struct {
	pool     *pgxpool.Pool
	db       *pgxpool.Conn
	server   store.Server
	pooled   bool // something stands between pool and server
	migrated bool
	spread   bool   // Citus has distributed the tables: what is here of them is empty
	newer    bool   // by a newer program
	grants   string // what lets this user see whether the schema fits; "" if he sees it
	found    []Advice
}

func (d *doctor) say(topic string, severity Severity, do, format string, args ...any) {
	d.found = append(d.found, Advice{topic, severity, fmt.Sprintf(format, args...), do})
}

// fine says so unless something else was said of the topic.
func (d *doctor) fine(topic, format string, args ...any) {
	if !slices.ContainsFunc(d.found, func(a Advice) bool { return a.Topic == topic && a.Severity != SeverityUnseen }) {
		d.say(topic, SeverityFine, "", format, args...)
	}
}

const (
	oldestMajor = 14
	newestMajor = 18
)

func (d *doctor) aboutServer() {
	s := d.server
	switch major := s.Version / 10_000; {
	case major < oldestMajor:
		d.say("server", SeverityProblem, fmt.Sprintf("Upgrade it to Postgres %d to %d.", oldestMajor, newestMajor), "Postgres %s is older than what Kagzi supports.", s.VersionText)
	case major > newestMajor:
		d.say("server", SeverityWarning, "Upgrade Kagzi, or read its release notes.", "Postgres %s is newer than what this version of Kagzi was tested with.", s.VersionText)
	}
	switch {
	case s.Standby:
		d.say("server", SeverityProblem, "Connect to the primary: add target_session_attrs=read-write to the connection string.", "The server is a standby, which takes no writes.")
	case s.ReadOnly:
		d.say("server", SeverityProblem, "ALTER ROLE … RESET default_transaction_read_only, or the same for the database.", "default_transaction_read_only is on.")
	}
	d.fine("server", "Postgres %s.", s.VersionText)
}

func (d *doctor) schema(ctx context.Context) error {
	version, err := migrations.Check(ctx, d.db)
	switch {
	case errors.Is(err, migrations.ErrMissing):
		d.say("schema", SeverityProblem, "Call kagzi.Migrate.", "%s.", text.Sentence(err.Error()))
		return nil
	case errors.Is(err, migrations.ErrOlder):
		d.say("schema", SeverityProblem, "Call kagzi.Migrate.", "%s.", text.Sentence(err.Error()))
	case errors.Is(err, migrations.ErrNewer):
		d.say("schema", SeverityProblem, "Upgrade this program's Kagzi.", "%s.", text.Sentence(err.Error()))
	case err != nil:
		lacks, ok := errors.AsType[*store.MissingRights](store.ExplainRightsOn(ctx, d.db, err))
		if !ok {
			return err
		}
		d.grants = lacks.Grants() + ";"
		d.lacks(lacks)
		return nil
	}
	d.migrated, d.newer = true, version > migrations.Version()
	if d.server.Standby || d.server.ReadOnly {
		return nil // said already
	}
	if err := store.New(d.pool, "").CheckRightsOn(ctx, d.db); err != nil {
		lacks, ok := errors.AsType[*store.MissingRights](err)
		if !ok {
			return err
		}
		d.lacks(lacks)
	}
	d.fine("schema", "%s, and this user may read and write its tables.", migrations.Describe(version))
	return nil
}

func (d *doctor) lacks(rights *store.MissingRights) {
	d.say("schema", SeverityProblem, rights.Grants()+";", "User %s lacks %s.", quoted(rights.User), rights.What())
}

// none says why nothing can be said of what belongs to the tables.
func (d *doctor) none(topic string) {
	if d.grants != "" {
		d.say(topic, SeverityUnseen, d.grants, "This user may not look.")
		return
	}
	d.fine(topic, "There are none yet.")
}

// pooler finds out what stands between the pool and the server. A pooler announces a process of its own invention; one in
// transaction mode gives a process to whoever needs one, so while another connection has the process that answered last,
// the next answer comes from another.
func (d *doctor) pooler(ctx context.Context) error {
	conn, err := store.Connect(ctx, d.pool)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	before, err := store.BackendPID(ctx, conn)
	if err != nil {
		return err
	}
	d.pooled = before != conn.PgConn().PID()
	var after uint32
	err = pgx.BeginTxFunc(ctx, d.db, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) (err error) {
		if _, err = store.BackendPID(ctx, tx); err == nil {
			after, err = store.BackendPID(ctx, conn)
		}
		return err
	})
	if err != nil {
		return err
	}
	heard := false
	if before == after && !d.server.Standby {
		if heard, err = store.Hears(ctx, conn, d.db, uuid.NewString(), hearTimeout); err != nil {
			return err
		}
	}
	switch {
	case heard && d.pooled:
		d.say("pooler", SeverityFine, "", "There is a pooler in session mode, through which notifications are heard.")
	case heard:
		d.say("pooler", SeverityFine, "", "No pooler; notifications are heard.")
	case d.server.Standby && before == after:
		d.say("pooler", SeverityUnseen, "", "A standby sends no notifications to try.")
	default:
		d.say("pooler", SeverityWarning, "Connect to the server itself or through a pooler in session mode, or live with WorkerConfig.PollInterval; call Migrate over a direct connection in any case, "+
			"and add default_query_exec_mode=exec to the URL if the pooler knows no prepared statements.",
			"There is a pooler in transaction mode: LISTEN is not heard, so workers and Result poll.")
	}
	return nil
}

func (d *doctor) clock(ctx context.Context) error {
	best, ahead := time.Hour, time.Duration(0)
	for range 3 {
		sent := time.Now()
		now, err := store.DatabaseTime(ctx, d.db)
		if err != nil {
			return err
		}
		if took := time.Since(sent); took < best {
			best, ahead = took, now.Sub(sent.Add(took/2))
		}
	}
	d.clockIs(ahead, best)
	return nil
}

// clockIs says what it means that the database's clock is ahead, as far as an answer that took so long can tell.
func (d *doctor) clockIs(ahead, best time.Duration) {
	where := "ahead of"
	if ahead < 0 {
		where = "behind"
	}
	rounded := ahead.Abs().Round(100 * time.Microsecond)
	if ahead.Abs() > time.Second+best {
		d.say("clock", SeverityWarning, "Run NTP on both. Kagzi goes by the database's clock alone, but times that the application passes to At and SleepUntil are off by this.",
			"The database's clock is %s %s this process's.", rounded, where)
	}
	give := (best / 2).Round(100 * time.Microsecond)
	switch {
	case rounded == 0 && give == 0:
		d.fine("clock", "The database's clock and this process's agree.")
	case rounded == 0:
		d.fine("clock", "The database's clock and this process's agree, give or take %s.", give)
	}
	d.fine("clock", "The database's clock is %s %s this process's, give or take %s.", rounded, where, give)
}

func (d *doctor) notifications(ctx context.Context) error {
	usage, err := store.NotificationQueue(ctx, d.db)
	if err != nil {
		return err
	}
	do := "End the session that listens and stays in a transaction: SELECT pg_terminate_backend(pid), for the pid under \"idle transactions\" or \"snapshots\"."
	switch {
	case usage > 0.5:
		d.say("notifications", SeverityProblem, do, "The server's queue of notifications is %.0f %% full; when it is full, commits with a NOTIFY fail.", usage*100)
	case usage > 0.05:
		d.say("notifications", SeverityWarning, do, "The server's queue of notifications is %.0f %% full: somebody does not read his.", usage*100)
	}
	d.fine("notifications", "The server's queue of notifications is %.1f %% full.", usage*100)
	return nil
}

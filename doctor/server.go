package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/migrations"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/store/inspect"
)

// The versions of Postgres that Kagzi is tested with.
const (
	oldestMajor = 14
	newestMajor = 18
)

// checkServer checks the server's version, and that it takes writes.
func (e *examination) checkServer() {
	s := e.server
	switch major := s.Version / 10_000; {
	case major < oldestMajor:
		e.add("server", Problem, fmt.Sprintf("Upgrade it to Postgres %d to %d.", oldestMajor, newestMajor),
			"Postgres %s is older than what Kagzi supports.", s.VersionText)
	case major > newestMajor:
		e.add("server", Warning, "Upgrade Kagzi, or read its release notes.", "Postgres %s is newer than what this "+
			"version of Kagzi was tested with.", s.VersionText)
	}
	switch {
	case s.Standby:
		e.add("server", Problem, "Connect to the primary: add target_session_attrs=read-write to the connection "+
			"string.", "The server is a standby, which takes no writes.")
	case s.ReadOnly:
		e.add("server", Problem, "ALTER ROLE … RESET default_transaction_read_only, or the same for the database.",
			"default_transaction_read_only is on.")
	}
	if s.Encoding != "UTF8" {
		e.add("server", Problem, "Create another database, as with CREATE DATABASE … TEMPLATE template0 ENCODING "+
			"'UTF8', and connect to that.", "The encoding of the database is %s, which cannot store every text: "+
			"Kagzi needs UTF8.", s.Encoding)
	}
	e.addFine("server", "Postgres %s.", s.VersionText)
}

// schema checks that this program works with the schema, and that this user may read and write its tables.
func (e *examination) schema(ctx context.Context) error {
	version, err := migrations.Check(ctx, e.db)
	switch {
	case errors.Is(err, migrations.ErrMissing):
		e.add("schema", Problem, "Call kagzi.Migrate.", "%s.", text.Sentence(err.Error()))
		return nil
	case errors.Is(err, migrations.ErrOlder):
		e.add("schema", Problem, "Call kagzi.Migrate.", "%s.", text.Sentence(err.Error()))
	case errors.Is(err, migrations.ErrEncoding) && version == 0:
		e.addNoTables("schema")
		return nil
	case errors.Is(err, migrations.ErrEncoding): // checkServer reports it
	case errors.Is(err, migrations.ErrNewer):
		e.add("schema", Problem, "Upgrade this program's Kagzi.", "%s.", text.Sentence(err.Error()))
	case err != nil:
		lacks, ok := errors.AsType[*store.MissingRights](store.ExplainRightsOn(ctx, e.db, err))
		if !ok {
			return err
		}
		e.grants = lacks.Grants() + ";"
		e.addMissingRights(lacks)
		return nil
	}
	e.migrated, e.newer = true, version > migrations.Version()
	if e.server.Standby || e.server.ReadOnly {
		return nil // checkServer reports it
	}
	may, err := store.New(e.pool, "").CheckRightsOn(ctx, e.db, store.ClientRights)
	if err != nil {
		lacks, ok := errors.AsType[*store.MissingRights](err)
		if !ok {
			return err
		}
		e.addMissingRights(lacks)
	}
	e.addFine("schema", "%s, and this user %s.", migrations.Describe(version), rightsOf[may])
	return nil
}

// rightsOf says what a user may do.
var rightsOf = map[store.Rights]string{
	store.ViewerRights: "may read its tables, and change nothing",
	store.ClientRights: "may start and change runs, but not execute them",
	store.WorkerRights: "may read and write its tables",
}

func (e *examination) addMissingRights(rights *store.MissingRights) {
	e.add("schema", Problem, rights.Grants()+";", "User %s lacks %s.", quote(rights.User), rights.What())
}

// durability checks the settings without which a crash of the server's machine loses or destroys data.
func (e *examination) durability(ctx context.Context) error {
	s, err := inspect.Settings(ctx, e.db, "fsync", "full_page_writes", "synchronous_commit")
	if err != nil {
		return err
	}
	for _, name := range []string{"fsync", "full_page_writes"} {
		if s[name].Value == "off" {
			e.add("durability", Problem, fmt.Sprintf("ALTER SYSTEM SET %s = on; SELECT pg_reload_conf();", name),
				"%s is off: a crash of the server's machine may destroy the database.", name)
		}
	}
	if s["synchronous_commit"].Value == "off" {
		e.add("durability", Warning, "ALTER ROLE "+quote(e.server.User)+" SET synchronous_commit = on;",
			"synchronous_commit is off: a crash of the server loses commits of the last moments that it has "+
				"acknowledged, so steps run again and starts are lost.")
	}
	e.addFine("durability", "fsync and full_page_writes are on, synchronous_commit is %s.",
		s["synchronous_commit"].Value)
	return nil
}

// harmfulTimeouts are settings that an administrator may have made for other programs. Each does harm if it is shorter
// than least.
var harmfulTimeouts = []struct {
	name  string
	least time.Duration // zero: any length does harm
	harm  string
}{
	{"statement_timeout", 10 * time.Second, "it ends Start, List and the statements of a StepTx; claims and records " +
		"are exempt"},
	{"transaction_timeout", 30 * time.Second, "it ends the transactions of StepTx, of claims and of records"},
	{"lock_timeout", time.Second, "it ends Start, Cancel and Signal where they wait for a run that is being written"},
	{"idle_in_transaction_session_timeout", 10 * time.Second, "it ends a StepTx whose function sends no statement " +
		"for that long"},
	{"idle_session_timeout", 0, "it ends the connection that listens, which sends nothing, again and again"},
}

// settings checks timeouts and the isolation level of this user's sessions.
func (e *examination) settings(ctx context.Context) error {
	names := []string{"default_transaction_isolation"}
	for _, h := range harmfulTimeouts {
		names = append(names, h.name)
	}
	s, err := inspect.Settings(ctx, e.db, names...)
	if err != nil {
		return err
	}
	role := quote(e.server.User)
	for _, h := range harmfulTimeouts {
		if v := s[h.name].Time; v > 0 && (h.least == 0 || v < h.least) {
			e.add("settings", Warning, fmt.Sprintf("ALTER ROLE %s SET %s = 0;", role, h.name), "%s is %s: %s.", h.name,
				duration.Format(v), h.harm)
		}
	}
	if v := s["default_transaction_isolation"].Value; v != "read committed" {
		e.add("settings", Warning, fmt.Sprintf("ALTER ROLE %s SET default_transaction_isolation = 'read "+
			"committed';", role),
			"default_transaction_isolation is %s: concurrent statements fail and are repeated where they would "+
				"otherwise wait for a moment.", v)
	}
	e.addFine("settings", "No timeout of this user's sessions does harm.")
	return nil
}

// quote returns name as an identifier of SQL.
func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// clock compares the database's clock with this process's, by the fastest of three answers.
func (e *examination) clock(ctx context.Context) error {
	best, ahead := time.Hour, time.Duration(0)
	for range 3 {
		sent := time.Now()
		now, err := store.DatabaseTime(ctx, e.db)
		if err != nil {
			return err
		}
		if took := time.Since(sent); took < best {
			best, ahead = took, now.Sub(sent.Add(took/2))
		}
	}
	e.addClock(ahead, best)
	return nil
}

// addClock adds how far the database's clock is ahead. The error is at most half of roundTrip, the time that the answer
// took.
func (e *examination) addClock(ahead, roundTrip time.Duration) {
	where := "ahead of"
	if ahead < 0 {
		where = "behind"
	}
	rounded := ahead.Abs().Round(100 * time.Microsecond)
	if ahead.Abs() > time.Second+roundTrip {
		e.add("clock", Warning, "Run NTP on both. Kagzi uses the database's clock alone, but times that the "+
			"application passes to At and SleepUntil are wrong by this much.",
			"The database's clock is %s %s this process's.", rounded, where)
	}
	give := (roundTrip / 2).Round(100 * time.Microsecond)
	switch {
	case rounded == 0 && give == 0:
		e.addFine("clock", "The database's clock and this process's agree.")
	case rounded == 0:
		e.addFine("clock", "The database's clock and this process's agree, give or take %s.", give)
	}
	e.addFine("clock", "The database's clock is %s %s this process's, give or take %s.", rounded, where, give)
}

// notifications checks that the server's queue of notifications does not fill.
func (e *examination) notifications(ctx context.Context) error {
	usage, err := inspect.NotificationQueue(ctx, e.db)
	if err != nil {
		return err
	}
	do := "End the session that listens and stays in a transaction: SELECT pg_terminate_backend(pid), for the pid " +
		"under \"idle transactions\" or \"snapshots\"."
	switch {
	case usage > 0.5:
		e.add("notifications", Problem, do, "The server's queue of notifications is %.0f %% full; when it is full, "+
			"commits with a NOTIFY fail.", usage*100)
	case usage > 0.05:
		e.add("notifications", Warning, do, "The server's queue of notifications is %.0f %% full: a session listens "+
			"and does not read its notifications.", usage*100)
	}
	e.addFine("notifications", "The server's queue of notifications is %.1f %% full.", usage*100)
	return nil
}

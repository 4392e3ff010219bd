package migrations

import (
	"fmt"
	"strings"
)

// SQL returns a script that migrates the schema from one version to another, to review, and to apply by
// psql -v ON_ERROR_STOP=1. The result is the same as that of kagzi.Migrate. From 0 is from a database whose schema
// kagzi is missing or empty; to 0 is to the version that this program needs. The version of any other database is
// SELECT max(version_id) FROM kagzi.schema_migrations. If from equals to, the script is empty. SQL returns an error if
// from is greater than to, or if this program does not know one of them, for example because it was rolled back: leave
// the schema as it is then.
func SQL(from, to int64) (string, error) {
	ms, err := parse(files)
	if err != nil {
		return "", err
	}
	return sqlOf(ms, from, to)
}

func sqlOf(ms []migration, from, to int64) (string, error) {
	last := newest(ms)
	refuse := func(format string, args ...any) (string, error) {
		return "", fmt.Errorf("kagzi: migration script: "+format, args...)
	}
	if to == 0 {
		to = last
	}
	switch {
	case from < 0 || to < 0:
		return refuse("there are no negative versions: from 0 is from an empty database, to 0 is to the newest version")
	case from > last && to <= last:
		return refuse("from version %d to %d: this program knows versions up to %d: leave the schema as it is if the "+
			"program was rolled back, else upgrade its Kagzi", from, to, last)
	case to > last:
		return refuse("from version %d to %d: this program knows versions up to %d: upgrade this program's Kagzi",
			from, to, last)
	case from > to:
		return refuse("from version %d to %d: migrations only go forward: leave the schema as it is, older programs "+
			"work with it if its kagzi.schema_migrations.oldest_program says so", from, to)
	case from == to:
		return "", nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, scriptHead, from, to, lockID)
	if from == 0 {
		fmt.Fprintf(&b, scriptCreate, createSchema, createVersions)
	}
	for _, m := range ms[from:to] {
		guard := fmt.Sprintf(scriptGuard, m.version-1, m.version)
		if m.contracts(ms) {
			guard += refuseInUse(m) + ";\n\n"
		}
		insert := fmt.Sprintf(scriptInsert, m.version, m.oldest)
		if m.outsideTx {
			fmt.Fprintf(&b, scriptOutsideTx, m.version, guard, m.up, insert)
		} else {
			fmt.Fprintf(&b, scriptVersion, m.version, tableLockTimeout, guard, m.up, insert)
		}
	}
	fmt.Fprintf(&b, scriptEnd, lockID)
	return b.String(), nil
}

// The parts of the script. It raises an exception if another process is migrating, if it was made for another version
// of the schema, or if a part of it was applied before.
const (
	scriptHead = `-- Kagzi: the schema from version %[1]d to version %[2]d.
--
-- Send it one statement at a time, on one connection, as the user who owns schema kagzi, and stop at the first error:
-- psql -v ON_ERROR_STOP=1 -f this-file. If a part fails with "lock timeout", it was rolled back: make a new ` +
		`script from the
-- version that the schema has then, and send that.

SET statement_timeout = 0;
SET lock_timeout = 0;
SET default_transaction_isolation = 'read committed';

DO $$
BEGIN
    IF NOT pg_try_advisory_lock(%[3]d) THEN
        RAISE EXCEPTION 'kagzi: another process is migrating: wait until it has ended';
    END IF;
END $$;

`
	scriptCreate = `DO $$
BEGIN
    IF to_regnamespace('kagzi') IS NULL THEN
        %s;
    END IF;
    IF to_regclass('kagzi.schema_migrations') IS NULL THEN

%s;
INSERT INTO kagzi.schema_migrations (version_id, is_applied, oldest_program) VALUES (0, true, 0);

    END IF;
END $$;

`
	scriptVersion = `-- Version %d.

BEGIN;

SET LOCAL lock_timeout = '%s';

%s%s

%s
COMMIT;

`
	scriptOutsideTx = `-- Version %[1]d, outside of a transaction. It waits for the open transactions of others, and ` +
		`blocks nobody.

%[2]s%[3]s

BEGIN;

%[2]s%[4]s
COMMIT;

`
	scriptGuard = `DO $$
DECLARE
    found bigint := (SELECT max(version_id) FROM kagzi.schema_migrations WHERE is_applied);
BEGIN
    IF found <> %[1]d THEN
        RAISE EXCEPTION 'kagzi: this part leads from version %[1]d to version %[2]d, and the schema has version %%: ` +
		`make the script from that version', found;
    END IF;
END $$;

`
	scriptInsert = `INSERT INTO kagzi.schema_migrations (version_id, is_applied, oldest_program) VALUES (%d, true, %d);
`
	scriptEnd = `SELECT pg_advisory_unlock(%d);
RESET default_transaction_isolation;
RESET lock_timeout;
RESET statement_timeout;
`
)

// refuseInUse returns a statement that fails with SQLSTATE inUse if workers are running whose programs do not work with
// the schema after m. It locks the registry: a worker that registers meanwhile waits, and then sees the new version. A
// worker that has sent no heartbeat for its stale_after counts as dead, as it does for coordinators: if it is alive, it
// has to register again.
func refuseInUse(m migration) string { return fmt.Sprintf(workersInUse, m.version, m.oldest, inUse) }

const workersInUse = `DO $$
DECLARE
    n bigint;
    example text;
BEGIN
    LOCK TABLE kagzi.workers IN SHARE MODE;
    SELECT count(*), min(format('build %%L, which knows version %%s, on host %%L', w.build, w.schema_version,
    	w.hostname)) INTO n, example
    FROM kagzi.workers w
    WHERE w.status <> 'OFFLINE' AND w.schema_version < %[2]d AND w.heartbeat_at > clock_timestamp() - w.stale_after;
    IF n > 0 THEN
        RAISE EXCEPTION 'migration %[1]d takes away what programs before version %[2]d need, and workers of such ` +
	`programs are running: %%, for example %%: bring them to a release that knows version %[2]d first, or stop them',
            n, example USING ERRCODE = '%[3]s';
    END IF;
END $$`

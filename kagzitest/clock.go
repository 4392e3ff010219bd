package kagzitest

// searchPath makes statements find the functions of shadow before the server's of the same names. Objects created without a
// schema still go to public.
const searchPath = `"$user", public, kagzitest, pg_catalog`

// shadow gives a database a clock of its own: functions that return the server's time plus the time by which the clock was set
// forward, under the names that statements use. The defaults of columns were bound to the server's functions when the tables
// were made, so they are set again.
//
// move sets the clock forward, at most to a time. It moves the leases of running runs and the heartbeats, too, so that these do
// not expire. Its locks wait for the end of every transaction that writes runs, so that no transaction sees the clock jump.
// They wait only briefly, because other transactions queue up behind them.
const shadow = `
CREATE SCHEMA kagzitest;
CREATE TABLE kagzitest.clock (micros bigint NOT NULL);
INSERT INTO kagzitest.clock VALUES (0);

CREATE FUNCTION kagzitest.now() RETURNS timestamptz LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
BEGIN
	RETURN pg_catalog.now() + (SELECT c.micros * interval '1 microsecond' FROM kagzitest.clock c);
END $$;
CREATE FUNCTION kagzitest.statement_timestamp() RETURNS timestamptz LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
BEGIN
	RETURN pg_catalog.statement_timestamp() + (SELECT c.micros * interval '1 microsecond' FROM kagzitest.clock c);
END $$;
CREATE FUNCTION kagzitest.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql VOLATILE PARALLEL SAFE AS $$
BEGIN
	RETURN pg_catalog.clock_timestamp() + (SELECT c.micros * interval '1 microsecond' FROM kagzitest.clock c);
END $$;

CREATE FUNCTION kagzitest.move(target timestamptz) RETURNS timestamptz LANGUAGE plpgsql AS $$
DECLARE
	d bigint;
BEGIN
	PERFORM set_config('lock_timeout', '100ms', true);
	LOCK TABLE kagzi.schedules, kagzi.workflow_runs, kagzi.workers IN EXCLUSIVE MODE;
	d := greatest(0, extract(epoch FROM target - kagzitest.clock_timestamp()) * 1000000);
	UPDATE kagzitest.clock SET micros = micros + d;
	UPDATE kagzi.workflow_runs SET available_at = available_at + d * interval '1 microsecond' WHERE status = 'RUNNING';
	UPDATE kagzi.workers SET heartbeat_at = heartbeat_at + d * interval '1 microsecond',
		stopped_at = stopped_at + d * interval '1 microsecond', release_at = release_at + d * interval '1 microsecond';
	PERFORM pg_notify('kagzi_work', h.hint) FROM (
		SELECT w.namespace_id || ':' || q.task_queue AS hint FROM kagzi.workers w CROSS JOIN LATERAL unnest(w.task_queues) AS q (task_queue) WHERE w.status <> 'OFFLINE'
		UNION SELECT w.namespace_id || ':' FROM kagzi.workers w
	) h;
	PERFORM pg_notify('kagzi_run', w.namespace_id || ':' || w.worker_id) FROM kagzi.workers w WHERE w.status <> 'OFFLINE';
	RETURN kagzitest.clock_timestamp();
END $$;

DO $$
DECLARE
	c record;
BEGIN
	FOR c IN SELECT d.adrelid::regclass AS relation, a.attname FROM pg_attrdef d
		JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
		JOIN pg_class r ON r.oid = d.adrelid AND r.relnamespace = 'kagzi'::regnamespace
		WHERE pg_get_expr(d.adbin, d.adrelid) ~ '\mnow\(\)'
	LOOP
		EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET DEFAULT kagzitest.now()', c.relation, c.attname);
	END LOOP;
END $$;`

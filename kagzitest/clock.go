package kagzitest

// searchPath makes statements find the functions of shadow before the server's of the same names. Objects created
// without a schema still go to public.
const searchPath = `"$user", public, kagzitest, pg_catalog`

// shadow gives a database a clock of its own: functions that return the server's time plus the time by which the clock
// was set forward, under the names that statements use. The defaults of columns were bound to the server's functions
// when the tables were made, so they are set again.
//
// move sets the clock forward, at most to a time. It moves the leases of running runs and the heartbeats, too, so that
// these do not expire. Its locks wait for the end of every transaction that writes runs or events, so that no
// transaction sees the clock jump. They wait only briefly, because other transactions queue up behind them.
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
	LOCK TABLE kagzi.schedules, kagzi.workflow_runs, kagzi.workers, kagzi.events, kagzi.consumers IN EXCLUSIVE MODE;
	d := greatest(0, extract(epoch FROM target - kagzitest.clock_timestamp()) * 1000000);
	UPDATE kagzitest.clock SET micros = micros + d;
	UPDATE kagzi.workflow_runs SET available_at = available_at + d * interval '1 microsecond' WHERE status = 'RUNNING';
	UPDATE kagzi.workers SET heartbeat_at = heartbeat_at + d * interval '1 microsecond',
		stopped_at = stopped_at + d * interval '1 microsecond', release_at = release_at + d * interval '1 microsecond';
	PERFORM pg_notify('kagzi_work', h.hint) FROM (
		SELECT w.namespace_id || ':' || q.task_queue AS hint FROM kagzi.workers w
			CROSS JOIN LATERAL unnest(w.task_queues) AS q (task_queue) WHERE w.status <> 'OFFLINE'
		UNION SELECT w.namespace_id || ':' FROM kagzi.workers w
	) h;
	PERFORM pg_notify('kagzi_run', w.namespace_id || ':' || w.worker_id) FROM kagzi.workers w
		WHERE w.status <> 'OFFLINE';
	RETURN kagzitest.clock_timestamp();
END $$;

-- What keeps claims from a run that is due, or that waits for a limit: a pause, or the lack of a slot or a token;
-- NULL: nothing does.
CREATE FUNCTION kagzitest.held_up(r kagzi.workflow_runs) RETURNS text LANGUAGE sql STABLE AS $$
	WITH holding AS (
		SELECT h.task_queue, h.run_key, h.key_scope
		FROM kagzi.workflow_runs h
		WHERE h.namespace_id = r.namespace_id AND h.slot IS NOT NULL AND (h.status = 'RUNNING' OR h.slot = 2
			AND h.status IN ('PENDING', 'SLEEPING'))
	)
	SELECT CASE
		WHEN r.available_at = 'infinity' AND EXISTS (SELECT FROM kagzi.limit_places p WHERE p.run_id = r.run_id
			AND p.namespace_id = r.namespace_id AND p.state = 'WAITING') THEN 'limit'
		WHEN r.status NOT IN ('PENDING', 'SLEEPING') OR r.outcome IS NOT NULL OR r.available_at > t.now THEN NULL
		WHEN r.paused_at IS NOT NULL OR k.paused_at IS NOT NULL OR EXISTS (
			SELECT FROM kagzi.pauses p
			WHERE p.namespace_id = r.namespace_id AND p.task_queue IN ('', r.task_queue)
				AND p.workflow_type IN ('', r.workflow_type)
		) THEN 'pause'
		WHEN r.slot = 2 THEN NULL
		WHEN CASE WHEN r.key_scope = '' THEN 1 ELSE coalesce(k.max_running, q.key_max_running) END <= (
			SELECT count(*) FROM holding h WHERE h.run_key = r.run_key AND h.key_scope = r.key_scope
		) THEN 'slot of key ' || r.run_key
		WHEN coalesce(k.rate_interval, q.key_interval) > 0 AND k.rate_at > t.now THEN 'rate of key ' || r.run_key
		WHEN q.max_running <= (SELECT count(*) FROM holding h WHERE h.task_queue = r.task_queue)
			THEN 'slot of queue ' || r.task_queue
		WHEN q.rate_interval > 0 AND q.rate_at > t.now THEN 'rate of queue ' || r.task_queue
	END
	FROM (SELECT kagzitest.clock_timestamp() AS now) t
	LEFT JOIN kagzi.queues q ON q.task_queue = r.task_queue AND q.namespace_id = r.namespace_id
	LEFT JOIN kagzi.run_keys k ON k.run_key = r.run_key AND k.key_scope = r.key_scope
		AND k.namespace_id = r.namespace_id
$$;

-- When a claim starts a run of the consumer, or pauses it because its last run has failed; NULL: not until
-- something else happens.
CREATE FUNCTION kagzitest.due_at(c kagzi.consumers) RETURNS timestamptz LANGUAGE sql STABLE AS $$
	SELECT CASE
		WHEN r.status NOT IN ('COMPLETED', 'FAILED', 'CANCELLED')
			OR EXISTS (SELECT FROM kagzi.run_keys k WHERE k.namespace_id = c.namespace_id AND k.run_key = c.run_key
				AND k.key_scope = '' AND k.paused_at IS NOT NULL) THEN NULL
		WHEN r.status = 'FAILED' AND c.pause_on_failure THEN r.finished_at
		ELSE LEAST(c.wake_at, CASE WHEN r.status IN ('FAILED', 'CANCELLED') THEN r.finished_at + c.least_wake END, (
			SELECT min(e.published_at)
			FROM kagzi.subscriptions s
			JOIN kagzi.events e ON e.topic = s.topic AND e.namespace_id = s.namespace_id AND e.position > s.looked_at
			WHERE s.consumer = c.consumer AND s.namespace_id = c.namespace_id AND s.subscribed
		))
	END
	FROM (VALUES (1)) AS one
	LEFT JOIN kagzi.workflow_runs r ON r.run_id = c.run_id AND r.namespace_id = c.namespace_id
$$;

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

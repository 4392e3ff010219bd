-- The roles of Kagzi: what a worker, a client and a viewer may do with the tables in the schema kagzi, and no more.
--
-- Send it by psql -v ON_ERROR_STOP=1, after the first migration and again after each one. It takes back what it does not
-- grant, in one transaction, so programs go on meanwhile. Send it as the owner of the tables, who is the user that calls
-- Migrate, or as a superuser. The first time, the roles are created: that needs CREATEROLE.
--
-- Then make each login a member of one of them:
--
--     CREATE ROLE shop LOGIN PASSWORD '…' IN ROLE kagzi_worker;
--
-- Kagzi needs nothing else that PUBLIC does not have: LISTEN, NOTIFY, advisory locks and SET LOCAL need no right. If your
-- database revokes CONNECT from PUBLIC, grant it to the roles. For what the doctor says of other users' sessions, grant
-- pg_read_all_stats to those who call it. Other tables, such as those of your transactional steps, are yours to grant.

DO $$
DECLARE
    missing name;
    owner name;
BEGIN
    SELECT pg_get_userbyid(c.relowner) INTO owner
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'kagzi' AND c.relname = 'workflow_runs';
    IF owner IS NULL THEN
        RAISE EXCEPTION 'this database has no tables of Kagzi: call Migrate first, as the user who shall own them';
    END IF;
    -- Who is not the owner would get hundreds of warnings, and then an error about one of the tables.
    IF NOT pg_has_role(owner, 'USAGE') THEN
        RAISE EXCEPTION 'user "%" may not grant rights on the tables of Kagzi: send this script as "%", who owns them, or as a superuser',
            current_user, owner;
    END IF;
    FOR missing IN
        SELECT r FROM unnest(ARRAY['kagzi_worker', 'kagzi_client', 'kagzi_viewer']) AS r WHERE to_regrole(r) IS NULL
    LOOP
        EXECUTE format('CREATE ROLE %I NOLOGIN', missing);
    END LOOP;

    REVOKE ALL ON ALL TABLES IN SCHEMA kagzi FROM kagzi_worker, kagzi_client, kagzi_viewer;
    REVOKE ALL ON ALL SEQUENCES IN SCHEMA kagzi FROM kagzi_worker, kagzi_client, kagzi_viewer;
    GRANT USAGE ON SCHEMA kagzi TO kagzi_worker, kagzi_client, kagzi_viewer;

    -- Everybody reads the version of the schema. Only the owner changes it.
    GRANT SELECT ON kagzi.schema_migrations TO kagzi_worker, kagzi_client, kagzi_viewer;

    -- Viewers read: lists, histories, health, statistics, the dashboard. That includes inputs, results and messages, which
    -- a Sealer hides.
    GRANT SELECT ON
        kagzi.workflow_runs, kagzi.step_runs, kagzi.signals, kagzi.run_events, kagzi.audit_log, kagzi.start_windows,
        kagzi.start_items, kagzi.schedules, kagzi.events, kagzi.event_parts, kagzi.event_keepers, kagzi.event_waits,
        kagzi.awaited_events, kagzi.consumers, kagzi.subscriptions, kagzi.queues, kagzi.run_keys, kagzi.key_changes, kagzi.limits, kagzi.limit_places, kagzi.pauses,
        kagzi.workers, kagzi.worker_events
        TO kagzi_worker, kagzi_client, kagzi_viewer;
    GRANT SELECT ON SEQUENCE kagzi.event_positions TO kagzi_worker, kagzi_client, kagzi_viewer;

    -- Clients start, change and delete runs, send messages, publish events, and set schedules, limits and pauses. Who locks
    -- rows needs UPDATE. A change of a run ends or forgets its steps, and Fork copies them.
    GRANT INSERT, UPDATE, DELETE ON
        kagzi.workflow_runs, kagzi.step_runs, kagzi.schedules, kagzi.limits, kagzi.limit_places, kagzi.pauses
        TO kagzi_worker, kagzi_client;
    GRANT INSERT, DELETE ON kagzi.signals, kagzi.run_events, kagzi.start_items TO kagzi_worker, kagzi_client;
    GRANT INSERT, UPDATE ON kagzi.start_windows, kagzi.queues, kagzi.run_keys TO kagzi_worker, kagzi_client;
    GRANT DELETE ON kagzi.event_waits TO kagzi_worker, kagzi_client;
    GRANT INSERT ON kagzi.events, kagzi.awaited_events, kagzi.key_changes, kagzi.worker_events, kagzi.audit_log TO kagzi_worker, kagzi_client;
    GRANT UPDATE, DELETE ON kagzi.consumers, kagzi.subscriptions TO kagzi_worker, kagzi_client;
    GRANT USAGE ON SEQUENCE kagzi.event_positions TO kagzi_worker, kagzi_client;
    -- They force a worker offline, but report nothing in its name.
    GRANT UPDATE (status, stopped_at, active_count, release_at, recheck_keys) ON kagzi.workers TO kagzi_client;

    -- Workers also register, read messages, hand out slots, and do the housekeeping: they remove what is over or too old.
    GRANT UPDATE ON kagzi.signals, kagzi.run_events, kagzi.audit_log, kagzi.event_waits TO kagzi_worker;
    GRANT DELETE ON kagzi.start_windows, kagzi.queues, kagzi.run_keys, kagzi.key_changes, kagzi.worker_events,
        kagzi.audit_log TO kagzi_worker;
    GRANT INSERT ON kagzi.consumers, kagzi.subscriptions, kagzi.event_waits TO kagzi_worker;
    GRANT DELETE ON kagzi.awaited_events TO kagzi_worker;
    GRANT INSERT, UPDATE, DELETE ON kagzi.workers, kagzi.event_parts TO kagzi_worker;
    GRANT INSERT, UPDATE ON kagzi.event_keepers TO kagzi_worker;
    GRANT TRUNCATE ON
        kagzi.events, kagzi.events_0, kagzi.events_1, kagzi.events_2, kagzi.events_3, kagzi.events_4, kagzi.events_5,
        kagzi.events_6, kagzi.events_7
        TO kagzi_worker;
END $$;

-- The tables of Kagzi. Every key and unique index contains namespace_id, so that the tables can be
-- distributed or partitioned by it, and no index that they could use leads with it: with statistics missing or stale the
-- planner would answer statements about one run from such an index, by scanning the namespace.

-- +kagzi OldestProgram 1
-- +goose Up

-- The queue, and the head of each run's history. A run that may be claimed, now
-- or later, is PENDING, RUNNING or SLEEPING; available_at says from when. A sleeping run becomes due when its wakeups
-- reach wakeups_awaited: a parent that waits for a thousand children is woken once, and a run that waits for the time
-- alone by nothing. A detached child goes on when its parent ends. A run that was restarted or forked from another says
-- from which. A FAILED run that only people can help is quarantined. outcome is how a run ends, or has ended, that has
-- compensations to run first: until then it is SLEEPING, and nobody claims it.
CREATE TABLE kagzi.workflow_runs (
    run_id              uuid                     NOT NULL,
    namespace_id        text        COLLATE "C"  NOT NULL,
    external_id         text        COLLATE "C",
    input_hash          bytea,
    task_queue          text        COLLATE "C"  NOT NULL,
    workflow_type       text        COLLATE "C"  NOT NULL,
    version             integer,
    priority            smallint                 NOT NULL DEFAULT 3 CHECK (priority BETWEEN 1 AND 4),
    status              text        COLLATE "C"  NOT NULL CHECK (status IN
                            ('PENDING', 'RUNNING', 'SLEEPING', 'COMPLETED', 'FAILED', 'CANCELLED')),
    available_at        timestamptz,
    locked_by           uuid,
    lease               uuid,
    attempts            integer                  NOT NULL DEFAULT 0,
    recoveries          integer                  NOT NULL DEFAULT 0,
    recoveries_since    timestamptz,
    load_failures       integer                  NOT NULL DEFAULT 0,
    wakeups             bigint                   NOT NULL DEFAULT 0,
    wakeups_awaited     bigint                   NOT NULL DEFAULT 0,
    waiting_on          text,
    retry_policy        jsonb,
    deadline_at         timestamptz,
    metadata            jsonb,
    error_kind          text,
    error               text,
    quarantined         boolean                  NOT NULL DEFAULT false,
    outcome             jsonb,
    cancel_requested_at timestamptz,
    parent_run_id       uuid,
    parent_step_id      text        COLLATE "C",
    detached            boolean                  NOT NULL DEFAULT false,
    origin_run_id       uuid,
    schedule_id         uuid,
    schedule_name       text,
    timeout             interval,
    fire_at             timestamptz,
    created_at          timestamptz              NOT NULL DEFAULT now(),
    started_at          timestamptz,
    finished_at         timestamptz,
    PRIMARY KEY (run_id, namespace_id)
) WITH (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 1,
    autovacuum_vacuum_cost_limit = 2000
);

-- What a worker claims from. The type stands before the time: as a mere filter, a backlog of a type that the
-- worker does not have would be read through at every claim. Active runs always have a time. That the condition says
-- so keeps the index from statements about certain runs, which name a status and no time: analyzed while nothing is
-- active it looks empty, and would be read whole instead of the key.
CREATE INDEX workflow_runs_claim
    ON kagzi.workflow_runs (task_queue, namespace_id, workflow_type, priority, available_at)
    WHERE status IN ('PENDING', 'SLEEPING', 'RUNNING') AND available_at IS NOT NULL;

-- At most one active run for each external ID.
CREATE UNIQUE INDEX workflow_runs_active_external_id
    ON kagzi.workflow_runs (external_id, namespace_id)
    WHERE external_id IS NOT NULL AND status IN ('PENDING', 'SLEEPING', 'RUNNING');

-- The ended runs of an external ID, newest first. It mirrors the index above, so that each move is paid once.
CREATE INDEX workflow_runs_ended_external_id
    ON kagzi.workflow_runs (external_id, namespace_id, run_id)
    WHERE external_id IS NOT NULL AND status IN ('COMPLETED', 'FAILED', 'CANCELLED');

CREATE INDEX workflow_runs_parent
    ON kagzi.workflow_runs (parent_run_id, namespace_id)
    WHERE parent_run_id IS NOT NULL;

-- The active runs that have a Timeout, for what ends those that no worker takes. Runs without one have no entry. It leads
-- with the namespace, as no other does: nothing but that look asks for a deadline, so no other statement can use it.
CREATE INDEX workflow_runs_deadline
    ON kagzi.workflow_runs (namespace_id, deadline_at, run_id)
    WHERE deadline_at IS NOT NULL AND status IN ('PENDING', 'SLEEPING', 'RUNNING');

CREATE INDEX workflow_runs_metadata
    ON kagzi.workflow_runs USING gin (metadata jsonb_path_ops)
    WHERE metadata IS NOT NULL;

-- One run for each tick of a schedule.
CREATE UNIQUE INDEX workflow_runs_fire
    ON kagzi.workflow_runs (schedule_id, fire_at, namespace_id)
    WHERE schedule_id IS NOT NULL;

-- What a schedule's overlap policy asks for.
CREATE INDEX workflow_runs_active_fired
    ON kagzi.workflow_runs (schedule_id, namespace_id)
    WHERE schedule_id IS NOT NULL AND status IN ('PENDING', 'SLEEPING', 'RUNNING');

-- The runs that wait for the one before of their schedule: at most one each.
CREATE UNIQUE INDEX workflow_runs_queued
    ON kagzi.workflow_runs (schedule_id, namespace_id)
    WHERE schedule_id IS NOT NULL AND status = 'PENDING' AND waiting_on = 'previous run';

-- What only people can put right. Runs that end well, or fail for another reason, have no entry here, so their ends
-- do not pay for it. It is for Health alone.
CREATE INDEX workflow_runs_quarantined
    ON kagzi.workflow_runs (error_kind, namespace_id, finished_at)
    WHERE quarantined;

-- What has compensations to run, by the time of its next step. It is for the coordinator alone, and almost always empty. Its
-- condition names no status: the claim's index could answer what does, and this one statements about certain runs.
CREATE INDEX workflow_runs_compensating
    ON kagzi.workflow_runs (available_at, namespace_id)
    WHERE outcome IS NOT NULL AND finished_at IS NULL;

-- What waits because its history could not be read. It is for Health alone, and almost always empty.
CREATE INDEX workflow_runs_unread
    ON kagzi.workflow_runs (load_failures, namespace_id)
    WHERE load_failures > 0 AND status = 'PENDING';

-- Schedules: which run to start, and when. schedule_id is made of the namespace and the name, so that a schedule that is
-- deleted and created again is the same for the unique index of its runs. Every tick up to cursor_at is decided. next_at is
-- when a coordinator looks at the schedule next: infinity if never. A coordinator that cannot fire a schedule pauses it, and
-- says in problem why.
CREATE TABLE kagzi.schedules (
    schedule_id    uuid                     NOT NULL,
    namespace_id   text        COLLATE "C"  NOT NULL,
    name           text        COLLATE "C"  NOT NULL,
    cron_expr      text,
    time_zone      text,
    max_catchup    integer                  NOT NULL,
    overlap_policy text,
    spec           jsonb                    NOT NULL,
    paused         boolean                  NOT NULL,
    problem        text,
    cursor_at      timestamptz              NOT NULL,
    next_at        timestamptz              NOT NULL,
    task_queue     text        COLLATE "C"  NOT NULL,
    workflow_type  text        COLLATE "C"  NOT NULL,
    version        integer,
    priority       smallint                 NOT NULL CHECK (priority BETWEEN 1 AND 4),
    retry_policy   jsonb,
    metadata       jsonb,
    input          bytea,
    created_at     timestamptz              NOT NULL DEFAULT now(),
    PRIMARY KEY (schedule_id, namespace_id)
) WITH (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 1,
    autovacuum_vacuum_cost_limit = 2000
);

-- The schedules that are due.
CREATE INDEX schedules_due ON kagzi.schedules (next_at, namespace_id) WHERE NOT paused;

-- All schedules by name, for lists.
CREATE INDEX schedules_name ON kagzi.schedules (name, namespace_id);

-- Inputs and outputs, apart from the rows that every claim and finish rewrites.
CREATE TABLE kagzi.workflow_payloads (
    run_id       uuid              NOT NULL,
    namespace_id text  COLLATE "C" NOT NULL,
    input        bytea,
    output       bytea,
    PRIMARY KEY (run_id, namespace_id)
) WITH (
    fillfactor = 85,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 1,
    autovacuum_vacuum_cost_limit = 2000
);

-- One row for each attempt of each step. A FAILED attempt with wake_at will be followed by another at that
-- time; one without is final, until an attempt of the run forgets it when it ends: forgotten_by is that attempt, and the
-- next ones try the step again. first_attempt is the attempt this series began with. position is the record's place in the
-- run's order. A BRANCH is the failure of a branch, a MARKER what a group of branches has decided. sequence is, of a
-- SIGNAL, which message of its name the step has taken. run_attempt is 0 if a fork has the row from the other run, which has
-- the compensation of the step.
-- Each attempt of a COMPENSATION is a registration under its name, of which the last with a call counts: call and input say
-- what to run, output has the hashes of all registrations so far. It is RUNNING until it was run, as child_run_id.
CREATE TABLE kagzi.step_runs (
    run_id         uuid              NOT NULL,
    step_id        text  COLLATE "C" NOT NULL,
    attempt_number integer           NOT NULL,
    namespace_id   text  COLLATE "C" NOT NULL,
    status         text  COLLATE "C" NOT NULL CHECK (status IN ('RUNNING', 'COMPLETED', 'FAILED')),
    step_kind      text  COLLATE "C" NOT NULL CHECK (step_kind IN
                       ('FUNCTION', 'SLEEP', 'SIGNAL', 'CHILD_WORKFLOW', 'MARKER', 'BRANCH', 'COMPENSATION')),
    position       bigint            NOT NULL DEFAULT 0,
    sequence       bigint,
    run_attempt    integer           NOT NULL,
    first_attempt  integer           NOT NULL,
    forgotten_by   integer,
    call           jsonb,
    input          bytea,
    output         bytea,
    error_kind     text,
    error          text,
    permanent      boolean           NOT NULL DEFAULT false,
    wake_at        timestamptz,
    child_run_id   uuid,
    worker_id      uuid,
    started_at     timestamptz,
    finished_at    timestamptz,
    PRIMARY KEY (run_id, step_id, attempt_number, namespace_id)
) WITH (
    fillfactor = 95,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 1,
    autovacuum_vacuum_cost_limit = 2000
);

-- Messages to runs. sequence is the number of the wake-up that announced the message.
CREATE TABLE kagzi.signals (
    run_id       uuid              NOT NULL,
    name         text  COLLATE "C" NOT NULL,
    sequence     bigint            NOT NULL,
    namespace_id text  COLLATE "C" NOT NULL,
    signal_id    text  COLLATE "C" NOT NULL,
    payload      bytea,
    received_at  timestamptz       NOT NULL DEFAULT now(),
    consumed_by  text  COLLATE "C",
    PRIMARY KEY (run_id, name, sequence, namespace_id)
);

CREATE UNIQUE INDEX signals_signal_id ON kagzi.signals (signal_id, run_id, namespace_id);

-- The fleet: one row for each start of a worker.
CREATE TABLE kagzi.workers (
    worker_id          uuid              NOT NULL,
    namespace_id       text  COLLATE "C" NOT NULL,
    task_queue         text  COLLATE "C" NOT NULL,
    workflow_types     text[]            NOT NULL,
    handlers           text[],      -- what the worker has handlers for: "checkout/2"
    status             text  COLLATE "C" NOT NULL CHECK (status IN ('ONLINE', 'DRAINING', 'OFFLINE')),
    hostname           text              NOT NULL DEFAULT '',
    pid                integer           NOT NULL DEFAULT 0,
    build              text              NOT NULL DEFAULT '',
    schema_version     bigint            NOT NULL DEFAULT 0, -- the newest migration that its program knows
    labels             jsonb,
    max_concurrent     integer           NOT NULL DEFAULT 0,
    lease_timeout interval          NOT NULL,
    stale_after        interval          NOT NULL,
    backend_pid        integer,     -- of the heart's own connection; NULL if it is not certain to be its own
    backend_start      timestamptz, -- pids are used again
    server_start       timestamptz, -- and another server, or a restarted one, knows nothing of the backend
    active_count       integer           NOT NULL DEFAULT 0,
    completed_count    bigint            NOT NULL DEFAULT 0,
    failed_count       bigint            NOT NULL DEFAULT 0,
    started_at         timestamptz       NOT NULL DEFAULT now(),
    said               bigint            NOT NULL DEFAULT 0, -- the number of the last that the worker said of itself
    heartbeat_at       timestamptz       NOT NULL DEFAULT now(),
    stopped_at         timestamptz,
    release_at         timestamptz, -- when to look next for runs that a lost worker still holds
    PRIMARY KEY (worker_id, namespace_id)
) WITH (fillfactor = 50);

CREATE INDEX workers_live ON kagzi.workers (task_queue, namespace_id) WHERE status <> 'OFFLINE';
CREATE INDEX workers_release ON kagzi.workers (release_at, namespace_id) WHERE release_at IS NOT NULL;

CREATE TABLE kagzi.worker_events (
    worker_id    uuid              NOT NULL,
    event_id     uuid              NOT NULL,
    namespace_id text  COLLATE "C" NOT NULL,
    event        text  COLLATE "C" NOT NULL CHECK (event IN ('STARTED', 'DRAINING', 'STOPPED', 'LOST')),
    detail       text,
    occurred_at  timestamptz       NOT NULL DEFAULT now(),
    PRIMARY KEY (worker_id, event_id, namespace_id)
);

-- What people did to a run: its history beside its steps.
CREATE TABLE kagzi.run_events (
    run_id       uuid              NOT NULL,
    event_id     uuid              NOT NULL,
    namespace_id text  COLLATE "C" NOT NULL,
    event        text  COLLATE "C" NOT NULL CHECK (event IN ('CANCELLED', 'TERMINATED', 'RESUMED', 'RESTARTED', 'FORKED')),
    other_run_id uuid,  -- which it was restarted or forked from, or as
    step_id      text  COLLATE "C",
    reason       text,
    occurred_at  timestamptz       NOT NULL DEFAULT now(),
    PRIMARY KEY (run_id, event_id, namespace_id)
);

-- +goose Down
DROP TABLE kagzi.run_events;
DROP TABLE kagzi.worker_events;
DROP TABLE kagzi.workers;
DROP TABLE kagzi.signals;
DROP TABLE kagzi.step_runs;
DROP TABLE kagzi.workflow_payloads;
DROP TABLE kagzi.schedules;
DROP TABLE kagzi.workflow_runs;

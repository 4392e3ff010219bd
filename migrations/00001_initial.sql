-- The tables of Kagzi.
--
-- Every key and every unique index contains namespace_id, so that the tables can be distributed or partitioned by it. No index
-- leads with namespace_id if a statement about one run could use it: with missing or stale statistics, the planner would read
-- the namespace's whole part of the index for that statement.
--
-- Fillfactor leaves room in each page for updates of its rows. Autovacuum runs often and in small portions, because most of
-- these tables are queues.

-- +kagzi OldestProgram 1
-- +goose Up

-- Runs: the queue that workers claim from, and the current state of each run.
--
-- An active run is PENDING, RUNNING or SLEEPING. It may be claimed from available_at on. While a run is RUNNING, that is the end
-- of its lease: after it, another worker may claim the run.
--
-- A SLEEPING run also becomes due when wakeups reaches wakeups_awaited. So a parent that waits for a thousand children is
-- woken once, and a run that only waits for a time is woken by nothing else.
--
-- The input and the output are part of the row. In a table of their own they cost a second row with an index entry at each
-- start, a search at each claim, and a second write at each end. An update copies an input that is as small as most are, and
-- Postgres stores a value apart that makes its row larger than 2 kB: then an update copies only the pointer. They are the last
-- columns, because the log of an update within a page leaves out what the old and the new row have in common at their end.
-- toast_tuple_target has its default: a lower one does not change which rows are too large, only how far these are shrunk. With
-- inputs and outputs of 1.5 kB, targets of 512 to 1,024 bytes moved both of them at the end, for 16 % more log.
CREATE TABLE kagzi.workflow_runs (
    run_id              uuid                     NOT NULL, -- a UUIDv7 made by the client that starts the run
    namespace_id        text        COLLATE "C"  NOT NULL,
    external_id         text        COLLATE "C",           -- the ID that the application gave to the run
    input_hash          bytea,                             -- set with external_id: a start with another input is a conflict
    task_queue          text        COLLATE "C"  NOT NULL,
    workflow_type       text        COLLATE "C"  NOT NULL, -- the workflow's name
    version             integer,                           -- NULL until a claim sets the worker's default; NULL again if the run is given back unbegun
    priority            smallint                 NOT NULL DEFAULT 3 CHECK (priority BETWEEN 1 AND 4), -- 1 is claimed first
    status              text        COLLATE "C"  NOT NULL CHECK (status IN
                            ('PENDING', 'RUNNING', 'SLEEPING', 'COMPLETED', 'FAILED', 'CANCELLED')),
    available_at        timestamptz,                       -- infinity if no time makes the run due; NULL once it has ended
    locked_by           uuid,                              -- the worker that executes the run
    lease               uuid,                              -- new with each claim: only its holder may write; stays after the end
    attempts            integer                  NOT NULL DEFAULT 0, -- failed attempts of the run
    recoveries          integer                  NOT NULL DEFAULT 0, -- claims from a dead worker since the last progress
    recoveries_since    timestamptz,                       -- when the first of these was
    suspect_lease       uuid,                              -- the lease under which the run last began as a crash-loop suspect
    load_failures       integer                  NOT NULL DEFAULT 0, -- failures to read the history since it was last read
    wakeups             bigint                   NOT NULL DEFAULT 0, -- messages and ended children so far
    wakeups_awaited     bigint                   NOT NULL DEFAULT 0, -- the number of wakeups that makes a SLEEPING run due
    inbox_full_at       timestamptz,                       -- when it first refused a message because it had too many unread ones; NULL again once it takes one
    waiting_on          jsonb,                             -- a list, as package waits has it
    retry_policy        jsonb,                             -- of the run
    timeout             interval,                          -- of the run: a restart counts it anew
    execution_timeout   interval,                          -- the same, from the first claim on
    deadline_at         timestamptz,                       -- when the run has to end, whether a worker executes it or not
    start_within        interval,                          -- how long after it is due the run may begin
    start_by            timestamptz,                       -- when the run ends unless a worker has claimed it
    metadata            jsonb,                             -- the application's labels
    first_metadata      jsonb,                             -- those of the start, once they were changed: the code sees these, and the changes that it made itself
    headers             jsonb,                             -- what goes with the run to the runs that it starts, such as a tenant or a trace
    progress            jsonb,                             -- what the code last said of its progress, for people
    error_kind          text,
    error               text,
    quarantined         boolean                  NOT NULL DEFAULT false, -- FAILED for a reason that only people can remove
    outcome             jsonb,                             -- the final outcome, decided before the compensations run; once it is set, no worker claims the run. If that is COMPLETED, it has the output, too, in base64, until the run has ended
    cancel_requested_at timestamptz,                       -- when somebody cancelled the run: its worker has to end it as CANCELLED
    run_key             text        COLLATE "C",           -- the run's key, for limits and turns
    key_scope           text        COLLATE "C",           -- set with run_key: the queue that the key belongs to; empty for a group, which spans queues
    slot                smallint    CHECK (slot IN (1, 2)), -- set by a claim that counts the run against limits: 1 holds while the run is RUNNING, 2 until it ends
    paused_at           timestamptz,                       -- when somebody paused the run: nobody claims it
    parent_run_id       uuid,
    parent_step_id      text        COLLATE "C",           -- the parent's step that started this run
    detached            boolean                  NOT NULL DEFAULT false, -- the run goes on when its parent ends
    publishes           boolean                  NOT NULL DEFAULT false, -- its start and its end are published in the topic kagzi.runs
    origin_run_id       uuid,                              -- the run that this one was restarted or forked from
    schedule_id         uuid,                              -- the schedule that started the run; it may be deleted by now
    schedule_name       text        COLLATE "C",
    fire_at             timestamptz,                       -- the schedule's tick that the run stands for
    created_at          timestamptz              NOT NULL DEFAULT now(),
    started_at          timestamptz,                       -- the first claim; NULL again if the run is given back unbegun
    epoch               integer                  NOT NULL DEFAULT 0, -- how often the run has continued with another input
    continued_at        timestamptz,                       -- when it last did
    finished_at         timestamptz,
    input               bytea,
    output              bytea,                             -- of a run that completed; of one that failed, details
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

-- For claims. The type stands before the time: if it were only a filter, each claim would read through the backlog of a type
-- for which the worker has no handler. An active run always has an available_at. The condition says so nevertheless: without
-- it, the planner could use this index for a statement about one run that names a status. If the table was analyzed while no
-- run was active, the index looks empty, and such a statement would read all of it instead of searching the primary key.
--
-- A run that has a key and no slot is not in this index, but in the next one.
CREATE INDEX workflow_runs_claim
    ON kagzi.workflow_runs (task_queue, namespace_id, workflow_type, priority, available_at)
    WHERE status IN ('PENDING', 'SLEEPING', 'RUNNING') AND available_at IS NOT NULL
        AND (run_key IS NULL OR status = 'RUNNING' OR slot = 2) AND paused_at IS NULL;

-- Runs that wait for a slot of their key. A claim finds the keys in kagzi.run_keys, and then the runs of a key here.
CREATE INDEX workflow_runs_keyed
    ON kagzi.workflow_runs (key_scope, namespace_id, run_key, priority, available_at, run_id)
    WHERE run_key IS NOT NULL AND status IN ('PENDING', 'SLEEPING') AND available_at IS NOT NULL AND slot IS DISTINCT FROM 2 AND paused_at IS NULL;

-- Runs that hold a slot. The limits of queues and keys are counted here.
CREATE INDEX workflow_runs_slots
    ON kagzi.workflow_runs (task_queue, namespace_id, run_key, run_id)
    WHERE slot IS NOT NULL AND (status = 'RUNNING' OR slot = 2 AND status IN ('PENDING', 'SLEEPING'));

-- A group has at most one run with a slot.
CREATE UNIQUE INDEX workflow_runs_group_slot
    ON kagzi.workflow_runs (run_key, namespace_id)
    WHERE key_scope = '' AND slot = 2 AND status IN ('PENDING', 'SLEEPING', 'RUNNING');

-- An external ID has at most one active run.
CREATE UNIQUE INDEX workflow_runs_active_external_id
    ON kagzi.workflow_runs (external_id, namespace_id)
    WHERE external_id IS NOT NULL AND status IN ('PENDING', 'SLEEPING', 'RUNNING');

-- The ended runs of an external ID, by age. A run is in this index or in the one above, so a change of its status writes to
-- only one of them.
CREATE INDEX workflow_runs_ended_external_id
    ON kagzi.workflow_runs (external_id, namespace_id, run_id)
    WHERE external_id IS NOT NULL AND status IN ('COMPLETED', 'FAILED', 'CANCELLED');

-- The children of a run, in an order in which they can be read some at a time.
CREATE INDEX workflow_runs_parent
    ON kagzi.workflow_runs (parent_run_id, namespace_id, run_id)
    WHERE parent_run_id IS NOT NULL;

-- Active runs with a deadline, for the coordinator, which ends those that no worker executes. The index leads with the
-- namespace: no other statement has a condition on the deadline, so none can use it by mistake.
CREATE INDEX workflow_runs_deadline
    ON kagzi.workflow_runs (namespace_id, deadline_at, run_id)
    WHERE deadline_at IS NOT NULL AND status IN ('PENDING', 'SLEEPING', 'RUNNING');

-- Runs that have to begin by some time, likewise.
CREATE INDEX workflow_runs_start_by
    ON kagzi.workflow_runs (namespace_id, start_by, run_id)
    WHERE start_by IS NOT NULL AND status = 'PENDING' AND started_at IS NULL;

-- Runs by metadata.
CREATE INDEX workflow_runs_metadata
    ON kagzi.workflow_runs USING gin (metadata jsonb_path_ops)
    WHERE metadata IS NOT NULL;

-- A tick of a schedule has at most one run.
CREATE UNIQUE INDEX workflow_runs_fire
    ON kagzi.workflow_runs (schedule_id, fire_at, namespace_id)
    WHERE schedule_id IS NOT NULL;

-- The active runs of a schedule, for its overlap policy.
CREATE INDEX workflow_runs_active_fired
    ON kagzi.workflow_runs (schedule_id, namespace_id)
    WHERE schedule_id IS NOT NULL AND status IN ('PENDING', 'SLEEPING', 'RUNNING');

-- Runs that wait until no other run of their schedule is active. A schedule has at most one such run.
CREATE UNIQUE INDEX workflow_runs_queued
    ON kagzi.workflow_runs (schedule_id, namespace_id)
    WHERE schedule_id IS NOT NULL AND status = 'PENDING' AND waiting_on = '[{"kind": "previous run"}]';

-- For lists of runs. Each run is in one of the next three indexes, unless it moves: it is RUNNING, or PENDING and was due at once.
-- Those are in the claim's index. So starts and claims write to none of these, and an end to one. The namespace stands first, in
-- another collation, and attempts >= 0 always holds: only statements that name the collation can search these indexes, and only
-- those that repeat the condition can read them. The columns behind run_id are filters.

-- Runs that completed.
CREATE INDEX workflow_runs_completed
    ON kagzi.workflow_runs (namespace_id COLLATE "POSIX", task_queue, workflow_type, run_id, created_at, finished_at)
    WHERE finished_at IS NOT NULL AND status = 'COMPLETED' AND attempts >= 0;

-- Runs that failed or were cancelled.
CREATE INDEX workflow_runs_stopped
    ON kagzi.workflow_runs (namespace_id COLLATE "POSIX", status, task_queue, workflow_type, run_id, created_at, finished_at, error_kind)
    WHERE finished_at IS NOT NULL AND status IN ('FAILED', 'CANCELLED') AND attempts >= 0;

-- Active runs that sleep, were delayed, are paused, or wait for their key.
CREATE INDEX workflow_runs_waiting
    ON kagzi.workflow_runs (namespace_id COLLATE "POSIX", status, task_queue, workflow_type, run_id, created_at, error_kind)
    WHERE finished_at IS NULL AND (status = 'SLEEPING' OR paused_at IS NOT NULL OR status = 'PENDING' AND (run_key IS NOT NULL
        OR CASE WHEN available_at = 'infinity' THEN true ELSE available_at - created_at > interval '1 second' END)) AND attempts >= 0;

-- Quarantined runs, for Health. Other runs have no entry, so the index costs nothing when they end.
CREATE INDEX workflow_runs_quarantined
    ON kagzi.workflow_runs (error_kind, namespace_id, finished_at)
    WHERE quarantined;

-- Failed runs by kind, for Health. Only a run that fails has an entry. The index leads with the namespace: no other statement
-- names this status with a condition on the end, so none can use it by mistake.
CREATE INDEX workflow_runs_failed
    ON kagzi.workflow_runs (namespace_id, error_kind, finished_at, workflow_type)
    WHERE status = 'FAILED' AND finished_at IS NOT NULL;

-- Runs whose compensations are under way, by the time of the next step, for the coordinator. The index is almost always empty.
-- Its condition names no status: otherwise the planner could use the claim's index for the coordinator's statement, and this
-- index for statements about one run.
CREATE INDEX workflow_runs_compensating
    ON kagzi.workflow_runs (available_at, namespace_id)
    WHERE outcome IS NOT NULL AND finished_at IS NULL;

-- Runs that somebody paused, for Health. The index is almost always empty.
CREATE INDEX workflow_runs_paused
    ON kagzi.workflow_runs (paused_at, namespace_id)
    WHERE paused_at IS NOT NULL AND finished_at IS NULL;

-- Runs that are being deleted in several transactions, for the coordinator, which does the rest if the process has died that began it. The
-- index is almost always empty. No other statement has both conditions, so none can use it by mistake.
CREATE INDEX workflow_runs_deleted
    ON kagzi.workflow_runs (run_id, namespace_id)
    WHERE waiting_on = '[{"kind": "deletion"}]' AND finished_at IS NOT NULL;

-- Runs whose history could not be read, and crash-loop suspects, for Health. The index is almost always empty.
CREATE INDEX workflow_runs_unread
    ON kagzi.workflow_runs (load_failures, namespace_id)
    WHERE (load_failures > 0 OR recoveries >= 3) AND status = 'PENDING';

-- Runs whose workers died, for lists. Other runs have no entry. attempts >= 0 always holds: only statements that repeat the condition can
-- use the index.
CREATE INDEX workflow_runs_recovered
    ON kagzi.workflow_runs (recoveries, namespace_id)
    WHERE recoveries > 0 AND attempts >= 0;

-- Runs that refuse messages, for Health. The index is almost always empty.
CREATE INDEX workflow_runs_inbox_full
    ON kagzi.workflow_runs (inbox_full_at, namespace_id)
    WHERE inbox_full_at IS NOT NULL AND finished_at IS NULL;

-- The history of runs: one row for each attempt of each step.
--
-- A FAILED attempt that has wake_at is followed by another one at that time. Without wake_at the failure is final for this attempt
-- of the run. When that ends, it forgets the failure (forgotten_by), and the next attempt of the run tries the step again.
--
-- A RUNNING attempt that has error_kind is called at most once. With an error, or if its run is over, it is in doubt: the function
-- was called, and what the call has done is not known.
--
-- A MARKER records a decision, such as that of a group of branches. A BRANCH records the failure of a branch. A PUBLISH records that
-- its events were stored, in the same transaction; a METADATA that the run's metadata were changed. A VALUE has what a branch last
-- set a value of the run to, and replaces what it had set before: the one with the highest position counts.
--
-- Each attempt of a COMPENSATION is a registration under its name. The last one that has a call counts: call and input say which
-- run to start. output has the hashes of all registrations so far. The row is RUNNING until that run, child_run_id, has ended.
CREATE TABLE kagzi.step_runs (
    run_id         uuid              NOT NULL,
    step_id        text  COLLATE "C" NOT NULL, -- the step's name, below those of the branches around it: "group/0/step"; of an earlier epoch of the run below U+0001 and its number
    attempt_number integer           NOT NULL, -- from 1, without gaps
    namespace_id   text  COLLATE "C" NOT NULL,
    status         text  COLLATE "C" NOT NULL CHECK (status IN ('RUNNING', 'COMPLETED', 'FAILED')),
    step_kind      text  COLLATE "C" NOT NULL CHECK (step_kind IN
                       ('FUNCTION', 'SLEEP', 'SIGNAL', 'REQUEST', 'ASK', 'CHILD_WORKFLOW', 'MARKER', 'BRANCH', 'COMPENSATION', 'PEEK', 'RESERVE', 'PUBLISH', 'METADATA', 'REPLY', 'VALUE', 'EVENT', 'CHECKPOINT')),
    position       bigint            NOT NULL DEFAULT 0, -- of the record among the run's records
    sequence       bigint,                     -- of a SIGNAL, REQUEST or ASK: the sequence of the message that the step took; of a REPLY, that of the request; of a VALUE, how often the branch has set it
    run_attempt    integer           NOT NULL, -- of the run; 0 if a fork copied the row from a run that keeps the compensation
    first_attempt  integer           NOT NULL, -- the attempt_number from which the step's retry policy counts
    forgotten_by   integer,                    -- the run's attempt that forgot this failure when it ended
    call           jsonb,                      -- of a COMPENSATION: the workflow and the options of the run to start
    input          bytea,                      -- of a FUNCTION, its input, for people; of a COMPENSATION, the input of the run to start
    output         bytea,                      -- of a failure, its details
    error_kind     text,
    error          text,
    permanent      boolean           NOT NULL DEFAULT false, -- the failure is final, whatever the retry policy says; the REPLY refuses; nothing in the run waits until the doubt is resolved
    wake_at        timestamptz,                -- the end of a sleep or of a group's Timeout; of a FAILED attempt, when the next one may start
    child_run_id   uuid,                       -- the run that a CHILD_WORKFLOW or a COMPENSATION started
    worker_id      uuid,                       -- the worker that wrote the record, for people who search for a cause
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

-- The answers to requests. Other steps have no entry.
CREATE INDEX step_runs_replies
    ON kagzi.step_runs (run_id, sequence, namespace_id)
    WHERE step_kind = 'REPLY';

-- The values of runs.
CREATE INDEX step_runs_values
    ON kagzi.step_runs (run_id, namespace_id)
    WHERE step_kind = 'VALUE';

-- The attempts that are in doubt, for Health: see the column permanent.
CREATE INDEX step_runs_doubt
    ON kagzi.step_runs (run_id, namespace_id)
    WHERE status = 'RUNNING' AND error_kind IS NOT NULL;

-- Messages to runs. A request is a message that is answered: the record of the answer is a REPLY in kagzi.step_runs. The names of
-- requests begin with '#', as no signal's does, and those of the answers that runs get with '##'.
CREATE TABLE kagzi.signals (
    run_id       uuid              NOT NULL,
    name         text  COLLATE "C" NOT NULL,
    sequence     bigint            NOT NULL, -- the run's number of wakeups with this message: it orders the messages
    namespace_id text  COLLATE "C" NOT NULL,
    signal_id    text  COLLATE "C" NOT NULL, -- the message's ID: sent again, it is stored once
    payload      bytea,
    headers      jsonb,                      -- of the message, as in kagzi.workflow_runs
    payload_hash bytea,                      -- of a request, with its name: the ID of another request is refused; NULL: it is a signal
    expires_at   timestamptz,                -- from then on no step takes the request; NULL: it does not expire
    reply_to     text,                       -- the run and the step that get the answer as a message; NULL: the asker is no run
    sent_by      text,                       -- the run and the step that sent it, for people; NULL if no step did
    received_at  timestamptz       NOT NULL DEFAULT now(),
    consumed_by  text  COLLATE "C",          -- the step that took the message, '' if it has expired; NULL until then
    consumed_at  timestamptz,                -- when that was recorded
    set_aside_at timestamptz,                -- when a worker recorded that the message does not decode; NULL: a step may take it
    set_aside    text,                       -- why it does not decode
    PRIMARY KEY (run_id, name, sequence, namespace_id)
);

-- A message is stored at most once for each run. The condition always holds: it keeps the planner from using this index for a
-- statement about all messages of a run. If the table was analyzed while it was empty, both indexes seem to cost the same.
CREATE UNIQUE INDEX signals_signal_id
    ON kagzi.signals (signal_id, run_id, namespace_id)
    WHERE signal_id IS NOT NULL;

-- The messages that do not decode: people look for them. Other messages cost it nothing.
CREATE INDEX signals_set_aside
    ON kagzi.signals (run_id, name, sequence, namespace_id)
    WHERE set_aside_at IS NOT NULL;

-- Operations that people applied to a run, and its failed attempts: its history apart from its steps.
CREATE TABLE kagzi.run_events (
    run_id       uuid              NOT NULL, -- the run may be deleted by now: see run_events_deleted
    event_id     uuid              NOT NULL, -- made before the first try, so that a repetition finds it
    namespace_id text  COLLATE "C" NOT NULL,
    event        text  COLLATE "C" NOT NULL CHECK (event IN ('CANCELLED', 'TERMINATED', 'RESUMED', 'RESTARTED', 'FORKED', 'PAUSED', 'UNPAUSED', 'UPDATED', 'SIGNALLED', 'MESSAGE_DROPPED', 'MESSAGE_REDELIVERED', 'RESOLVED', 'ATTEMPT_FAILED', 'DELETED')),
    other_run_id uuid,                       -- the run that this one was restarted or forked from, or the new one; of DELETED, the run with which this one was deleted
    step_id      text  COLLATE "C",          -- where a fork begins
    reason       text,
    actor        text,                       -- who did it, if the caller said so
    changes      jsonb,                      -- what was changed, as [{"field": "queue", "from": "a", "to": "b"}]; of DELETED, what the run was
    external_id  text  COLLATE "C",          -- of DELETED, that of the run
    occurred_at  timestamptz       NOT NULL DEFAULT now(),
    PRIMARY KEY (run_id, event_id, namespace_id)
);

-- Who deleted which run: these events stay when their run goes. By age, for retention, and by the run's external ID.
CREATE INDEX run_events_deleted ON kagzi.run_events (occurred_at, namespace_id) WHERE event = 'DELETED';
CREATE INDEX run_events_deleted_id ON kagzi.run_events (external_id, namespace_id, occurred_at) WHERE event = 'DELETED' AND external_id IS NOT NULL;

-- Changes that people and programs have made through a client: of runs, schedules, limits, pauses, workers and consumers, and messages whose
-- sender said who it is. They are written in the transaction of the change, and stay for a time of their own when their object goes.
CREATE TABLE kagzi.audit_log (
    entry_id      uuid              NOT NULL, -- made before the first try, so that a repetition finds it
    namespace_id  text  COLLATE "C" NOT NULL,
    occurred_at   timestamptz       NOT NULL,
    action        text  COLLATE "C" NOT NULL, -- an event of kagzi.run_events, or another verb: "TRIGGERED"
    kind          text  COLLATE "C" NOT NULL CHECK (kind IN ('run', 'schedule', 'queue', 'key', 'group', 'workflow', 'all', 'limit', 'worker', 'consumer')),
    name          text  COLLATE "C" NOT NULL, -- of the object; of a run and a worker its ID, of all runs empty
    task_queue    text  COLLATE "C",          -- of a key, of a workflow that is paused in one queue, and of a worker that drains with its queue
    workflow_type text  COLLATE "C",          -- of a run
    external_id   text  COLLATE "C",          -- of a run
    other_run_id  uuid,                       -- as in kagzi.run_events; of a trigger, the run that it started
    step_id       text  COLLATE "C",          -- as in kagzi.run_events
    reason        text,
    actor         text  COLLATE "C",
    changes       jsonb,                      -- as in kagzi.run_events
    PRIMARY KEY (entry_id, namespace_id)
);

-- The log in the order of time, for lists and retention. For the collation, here and below, see the lists of runs.
CREATE INDEX audit_log_time ON kagzi.audit_log (namespace_id COLLATE "POSIX", occurred_at);

-- The log of one object, of the runs of an external ID, and of one actor.
CREATE INDEX audit_log_name ON kagzi.audit_log (name, namespace_id COLLATE "POSIX", occurred_at);
CREATE INDEX audit_log_external_id ON kagzi.audit_log (external_id, namespace_id COLLATE "POSIX", occurred_at) WHERE external_id IS NOT NULL;
CREATE INDEX audit_log_actor ON kagzi.audit_log (actor, namespace_id COLLATE "POSIX", occurred_at) WHERE actor IS NOT NULL;

-- The windows in which starts share a run: starts with OncePer for the same ID, starts with Debounce and items of a Batch for the
-- same workflow and key. A start locks the row, joins the run of the window if that is open, and otherwise opens another.
CREATE TABLE kagzi.start_windows (
    window_id     uuid              NOT NULL, -- made from the policy, the workflow and the key
    namespace_id  text  COLLATE "C" NOT NULL,
    policy        text  COLLATE "C" NOT NULL CHECK (policy IN ('once_per', 'debounce', 'batch', 'when_full')),
    workflow_type text  COLLATE "C" NOT NULL, -- empty for once_per, because an ID belongs to no workflow; for when_full the key_scope
    start_key     text  COLLATE "C" NOT NULL, -- the ID, or the key; for when_full the run_key, and the row is a lock only
    run_id        uuid,                       -- NULL until a start has opened the window; the run may be deleted by now
    start_id      uuid,                       -- of a debounce, the last start: its input is the run's
    items         integer           NOT NULL DEFAULT 0, -- of a batch
    bytes         bigint            NOT NULL DEFAULT 0, -- of these items
    most          integer           NOT NULL DEFAULT 0, -- so many items fill the batch
    closes_at     timestamptz       NOT NULL, -- from then on the next start opens another window
    PRIMARY KEY (window_id, namespace_id)
) WITH (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 1,
    autovacuum_vacuum_cost_limit = 2000
);

-- Windows by their ends, for retention.
CREATE INDEX start_windows_closed ON kagzi.start_windows (closes_at, namespace_id);

-- The items of batches. The run of a batch has no input of its own: its items, in their order, are its input.
CREATE TABLE kagzi.start_items (
    run_id       uuid              NOT NULL,
    place        integer           NOT NULL, -- from 0, without gaps
    namespace_id text  COLLATE "C" NOT NULL,
    item_id      uuid              NOT NULL, -- made by the client for the start, so that a repetition finds it
    input        bytea             NOT NULL,
    PRIMARY KEY (run_id, place, namespace_id)
) WITH (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 1,
    autovacuum_vacuum_cost_limit = 2000
);

-- An item is in one batch.
CREATE UNIQUE INDEX start_items_item ON kagzi.start_items (item_id, namespace_id);

-- Events of topics.
--
-- Readers go through a topic in the order of the positions. A transaction draws positions and commits later, so a position can appear
-- behind one that was read. Whoever publishes therefore takes a lock before, with the last position that was drawn until then.
-- Readers stop at the lowest of these locks.
--
-- The table is a ring of partitions. New events go to the one that is open, and old events leave with their whole partition, so
-- nothing of them remains for VACUUM. An ID is unique within its partition. Whoever publishes also searches the others, and
-- while another partition is opened nobody publishes.
CREATE SEQUENCE kagzi.event_positions; -- without a cache: each session draws a higher position than all before

CREATE TABLE kagzi.events (
    topic        text   COLLATE "C" NOT NULL,
    event_id     text   COLLATE "C" NOT NULL,
    namespace_id text   COLLATE "C" NOT NULL,
    part         smallint           NOT NULL, -- see kagzi.event_parts
    position     bigint             NOT NULL,
    title        text,                        -- for people
    payload      bytea,
    published_at timestamptz        NOT NULL,
    PRIMARY KEY (event_id, topic, namespace_id, part)
) PARTITION BY LIST (part);

-- Events in the order in which they are read.
CREATE INDEX events_order ON kagzi.events (topic, namespace_id, position);

CREATE TABLE kagzi.events_0 PARTITION OF kagzi.events FOR VALUES IN (0);
CREATE TABLE kagzi.events_1 PARTITION OF kagzi.events FOR VALUES IN (1);
CREATE TABLE kagzi.events_2 PARTITION OF kagzi.events FOR VALUES IN (2);
CREATE TABLE kagzi.events_3 PARTITION OF kagzi.events FOR VALUES IN (3);
CREATE TABLE kagzi.events_4 PARTITION OF kagzi.events FOR VALUES IN (4);
CREATE TABLE kagzi.events_5 PARTITION OF kagzi.events FOR VALUES IN (5);
CREATE TABLE kagzi.events_6 PARTITION OF kagzi.events FOR VALUES IN (6);
CREATE TABLE kagzi.events_7 PARTITION OF kagzi.events FOR VALUES IN (7);

-- The partitions of kagzi.events that are open or have events. Without rows, the first one is open.
CREATE TABLE kagzi.event_parts (
    part      smallint    NOT NULL PRIMARY KEY,
    opened_at timestamptz NOT NULL,
    closed_at timestamptz           -- no event of the partition is younger; NULL: it is open
) WITH (fillfactor = 50);

-- For how long each namespace keeps its events. The longest time counts, because partitions have events of all namespaces.
CREATE TABLE kagzi.event_keepers (
    keeper       text        COLLATE "C" NOT NULL PRIMARY KEY, -- the namespace
    keep         interval                NOT NULL,
    keep_pending interval                NOT NULL, -- the same for events that one of its consumers has not consumed
    told_at      timestamptz             NOT NULL  -- when a coordinator last said so: a namespace without one keeps nothing for long
);

-- Steps that wait for an event of a topic by its ID. The record of the wait's end deletes the row. That of a wait that never ends,
-- such as the loser of a race, stays until the run continues with another input or is deleted.
CREATE TABLE kagzi.event_waits (
    topic        text COLLATE "C" NOT NULL,
    event_id     text COLLATE "C" NOT NULL,
    run_id       uuid             NOT NULL,
    step         text COLLATE "C" NOT NULL, -- with its epoch, as in the name of the message by which it gets the event
    step_hash    uuid             NOT NULL, -- a name may be too long for an index
    namespace_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (topic, event_id, run_id, step_hash, namespace_id)
);

CREATE INDEX event_waits_run ON kagzi.event_waits (run_id, step_hash, namespace_id);

-- Events for which runs waited when they were published. A row goes once these runs have their messages: see store/doc_eventwaits.go.
CREATE TABLE kagzi.awaited_events (
    namespace_id text COLLATE "C" NOT NULL,
    publication  uuid             NOT NULL, -- made for the statement that wrote the row: no other one waits for it
    topic        text COLLATE "C" NOT NULL,
    event_id     text COLLATE "C" NOT NULL,
    PRIMARY KEY (namespace_id, publication, topic, event_id)
);

-- Consumers: workflows that run when there is something for them, which is an event that they have not looked at, or a time that they
-- asked for. A consumer has at most one active run. The claim that looks at its key starts the run: see run_keys.consumers_at. So
-- nothing waits for a consumer that has nothing to do, and whoever publishes does not write here.
CREATE TABLE kagzi.consumers (
    consumer         text     COLLATE "C" NOT NULL, -- the name, which is the workflow_type of its runs
    namespace_id     text     COLLATE "C" NOT NULL,
    run_key          text     COLLATE "C" NOT NULL, -- of its runs: its group, or a group of its own
    task_queue       text     COLLATE "C" NOT NULL, -- of its runs, as are the columns up to metadata
    priority         smallint          NOT NULL CHECK (priority BETWEEN 1 AND 4),
    retry_policy     jsonb,
    timeout          interval,
    metadata         jsonb,
    least_wake       interval          NOT NULL, -- a run may ask to be followed by another one no sooner,
    most_wake        interval          NOT NULL, -- and no later
    pause_on_failure boolean           NOT NULL, -- a run that fails for good pauses the key
    wake_at          timestamptz,                -- when a run is due, whether there are events or not; NULL: no time makes one due
    run_id           uuid,                       -- the last run
    noticed_at       timestamptz,                -- when that run had ended without success, the last time that a claim saw it; infinity: it has completed
    created_at       timestamptz       NOT NULL DEFAULT now(),
    state            bytea,                      -- what the last run that completed has returned
    PRIMARY KEY (consumer, namespace_id)
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 1,
    autovacuum_vacuum_cost_limit = 2000
);

-- The consumers of a key.
CREATE INDEX consumers_key ON kagzi.consumers (run_key, namespace_id);

-- Which events of a topic a consumer has consumed.
CREATE TABLE kagzi.subscriptions (
    topic        text     COLLATE "C" NOT NULL,
    consumer     text     COLLATE "C" NOT NULL,
    namespace_id text     COLLATE "C" NOT NULL,
    run_key      text     COLLATE "C" NOT NULL, -- as in kagzi.consumers, for those who publish
    task_queue   text     COLLATE "C" NOT NULL,
    subscribed   boolean           NOT NULL, -- the consumer's program names the topic
    position     bigint            NOT NULL, -- all events up to it are consumed,
    consumed     int8multirange    NOT NULL DEFAULT '{}', -- and those above it that are in here
    looked_at    bigint            NOT NULL, -- events up to it make no other run due
    PRIMARY KEY (topic, consumer, namespace_id)
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 1,
    autovacuum_vacuum_cost_limit = 2000
);

-- The topics of a consumer.
CREATE INDEX subscriptions_consumer ON kagzi.subscriptions (consumer, namespace_id);

-- Schedules: which run to start, and when.
CREATE TABLE kagzi.schedules (
    schedule_id    uuid              NOT NULL, -- made from namespace and name: the same if the schedule is deleted and created again
    namespace_id   text  COLLATE "C" NOT NULL,
    name           text  COLLATE "C" NOT NULL,
    cron_expr      text,                       -- NULL if spec has an interval
    time_zone      text,
    max_catchup    integer           NOT NULL, -- how many missed ticks are fired
    overlap_policy text,                       -- the effect of a tick while a run of the schedule is active; NULL: it starts its run nevertheless
    timing         jsonb             NOT NULL, -- the rest of the timetable
    paused         boolean           NOT NULL,
    paused_at      timestamptz,                -- since when it is paused, by whom and why: NULL unless it is paused, and the last two if nobody said so
    pause_actor    text,
    pause_reason   text,
    problem        text,                       -- why a coordinator paused the schedule, or why the last try to fire it failed
    cursor_at      timestamptz       NOT NULL, -- every tick up to this time is decided
    next_at        timestamptz       NOT NULL, -- when the schedule is due next; infinity if never
    task_queue     text  COLLATE "C" NOT NULL, -- of the run to start, as are the columns up to input
    workflow_type  text  COLLATE "C" NOT NULL,
    version        integer,
    priority       smallint          NOT NULL CHECK (priority BETWEEN 1 AND 4),
    retry_policy   jsonb,
    metadata       jsonb,
    headers        jsonb,
    run_key        text  COLLATE "C",
    key_scope      text  COLLATE "C",
    timeout        interval,
    execution_timeout interval,
    start_within   interval,
    publishes      boolean           NOT NULL DEFAULT false,
    input          bytea,
    created_at     timestamptz       NOT NULL DEFAULT now(), -- of the schedule
    PRIMARY KEY (schedule_id, namespace_id)
) WITH (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 1,
    autovacuum_vacuum_cost_limit = 2000
);

-- Schedules that are due.
CREATE INDEX schedules_due ON kagzi.schedules (next_at, namespace_id) WHERE NOT paused;

-- Schedules by name, for lists.
CREATE INDEX schedules_name ON kagzi.schedules (name, namespace_id);

-- Limits of queues. A queue without a row has none. A row without limits is deleted once it is settled. A claim that counts against max_running, or takes tokens of the rate, locks
-- the row first.
CREATE TABLE kagzi.queues (
    task_queue      text     COLLATE "C" NOT NULL,
    namespace_id    text     COLLATE "C" NOT NULL,
    max_running     integer  CHECK (max_running > 0), -- how many of its runs may hold a slot; NULL: any number
    rate_interval   bigint   CHECK (rate_interval > 0), -- microseconds between two starts; NULL: none
    rate_burst      integer  NOT NULL DEFAULT 1 CHECK (rate_burst > 0),
    rate_at         timestamptz,                      -- when the next start may be, if nothing was saved up
    slots_from      uuid     NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000', -- no run with a lower ID holds a slot
    key_max_running integer  CHECK (key_max_running > 0), -- the limits of a key that has none of its own
    key_interval    bigint   CHECK (key_interval > 0),
    key_burst       integer  NOT NULL DEFAULT 1 CHECK (key_burst > 0),
    held            boolean  NOT NULL DEFAULT false,  -- a run holds its slot until it ends; if not, only while it is RUNNING
    declared        jsonb,                            -- the limits that the code declares; NULL: none
    set_by          jsonb,                            -- who has set other limits since, when and why
    changed_at      timestamptz NOT NULL DEFAULT now(),
    settled         boolean  NOT NULL DEFAULT false,  -- a coordinator has looked again at what claims did that had not seen the change
    PRIMARY KEY (task_queue, namespace_id)
) WITH (fillfactor = 50);

-- The keys of runs, and their places in the line for slots.
CREATE TABLE kagzi.run_keys (
    key_scope     text     COLLATE "C" NOT NULL, -- as in kagzi.workflow_runs
    run_key       text     COLLATE "C" NOT NULL,
    namespace_id  text     COLLATE "C" NOT NULL,
    version       bigint   NOT NULL DEFAULT 0,   -- grows with each change that a claim makes, but for the first. A key has one row: see store/doc_keys.go
    fresh         boolean  NOT NULL DEFAULT true, -- no claim has changed the row
    available_at  timestamptz NOT NULL,          -- when a claim is to look at the key; infinity if no time makes a run of it startable
    credit        integer  NOT NULL DEFAULT 0,   -- how many runs it may still start in its turn
    weight        integer  CHECK (weight > 0),   -- how many runs it may start in a turn; NULL: 1
    max_running   integer  CHECK (max_running > 0), -- NULL: the queue's key_max_running
    rate_interval bigint   CHECK (rate_interval > 0), -- NULL: the queue's key_interval
    rate_burst    integer  CHECK (rate_burst > 0),
    rate_at       timestamptz,                   -- see kagzi.queues
    waits_from    timestamptz NOT NULL DEFAULT '-infinity', -- no run of the key that waits for a slot is due earlier, unless a change says so
    slots_from    uuid     NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000', -- no run of the key with a lower ID holds a slot
    consumers_at  timestamptz,                   -- when to look whether one of its consumers has something to do; infinity: after the next event; NULL: it has none
    paused_at     timestamptz,                   -- since when the key is paused: no claim takes a run of it; NULL: it is not
    pause_parks   boolean  NOT NULL DEFAULT false, -- executions under way stop at their next step
    pause_reason  text,
    pause_actor   text,
    PRIMARY KEY (key_scope, run_key, namespace_id, version)
) WITH (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 1,
    autovacuum_vacuum_cost_limit = 2000
);

-- The line: keys in the order in which claims look at them.
CREATE INDEX run_keys_line ON kagzi.run_keys (key_scope, namespace_id, available_at) WHERE available_at < 'infinity';

-- Paused keys, for lists. The index is almost always empty.
CREATE INDEX run_keys_paused ON kagzi.run_keys (key_scope, run_key, namespace_id) WHERE paused_at IS NOT NULL;

-- Changes after which a run of a key may be startable: it was inserted, it woke up, or a slot became free. They are inserted in
-- the transaction of the change, which so waits for no lock on the key, and holds none. A claim deletes them.
CREATE TABLE kagzi.key_changes (
    key_scope    text    COLLATE "C" NOT NULL,
    change_id    bigint  GENERATED ALWAYS AS IDENTITY,
    namespace_id text    COLLATE "C" NOT NULL,
    run_key      text    COLLATE "C" NOT NULL,
    due_at       timestamptz NOT NULL DEFAULT '-infinity', -- the runs that it is about are due no earlier: see run_keys.waits_from
    PRIMARY KEY (key_scope, change_id, namespace_id)
) WITH (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 1,
    autovacuum_vacuum_cost_limit = 2000
);

-- Limits on steps: how many may start in a time, and how many may run at once, in all workers together.
--
-- next_at is the time of the next token. Under the lock of the row it only grows, until a change of the limit lowers it.
CREATE TABLE kagzi.limits (
    limit_name   text  COLLATE "C" NOT NULL,
    namespace_id text  COLLATE "C" NOT NULL,
    every        bigint            NOT NULL DEFAULT 0 CHECK (every >= 0), -- microseconds between two tokens; 0: a step needs none
    burst        integer           NOT NULL DEFAULT 1 CHECK (burst > 0), -- how many unused tokens are kept
    max_running  integer           CHECK (max_running > 0), -- NULL: any number
    retry_after  boolean           NOT NULL DEFAULT false, -- an error that asks for a pause stops all steps
    declared     jsonb,                      -- what the code declares; NULL: nothing
    set_by       jsonb,                      -- who has set other values since, when and why; NULL: it is as declared, or no step begins because it is neither
    next_at      timestamptz       NOT NULL, -- the time of the next token, as far as the rate goes
    last_at      timestamptz,                -- the time of the last token that a step got; NULL: none did
    last_units   integer           NOT NULL DEFAULT 1, -- how many tokens that step took
    paused_until timestamptz,                -- until when an error has stopped all steps; NULL: none has
    PRIMARY KEY (limit_name, namespace_id)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 200);

-- Limited steps that wait or hold a slot. A place is WAITING in the line of its limit; CALLED, while a slot or a token is kept for
-- its run until due_at, or its run comes later; or RUNNING, while the step holds a slot.
--
-- A slot counts while the run is RUNNING under the lease. After the end of the run it counts a little longer, because its step
-- may not have returned yet. No process counts slots up or down.
CREATE TABLE kagzi.limit_places (
    run_id         uuid              NOT NULL,
    step_id        text  COLLATE "C" NOT NULL, -- with the number of the attempt: "pay#1"
    namespace_id   text  COLLATE "C" NOT NULL,
    limit_name     text  COLLATE "C" NOT NULL,
    state          text  COLLATE "C" NOT NULL CHECK (state IN ('WAITING', 'CALLED', 'RUNNING')),
    asked_at       timestamptz       NOT NULL, -- the order of the line
    due_at         timestamptz       NOT NULL, -- asked_at, or of a CALLED place until when it counts, or of a RUNNING one the time of its token
    units          integer           NOT NULL DEFAULT 1 CHECK (units > 0), -- slots and tokens that the step takes
    lease          uuid,                       -- of a RUNNING place, that of its run; of a CALLED one, if its run was deleted
    PRIMARY KEY (run_id, step_id, namespace_id, limit_name)
) WITH (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 1,
    autovacuum_vacuum_cost_limit = 2000
);

-- The places of a limit by their states: the line, the calls that count, and the slots. The condition always holds: without it, the
-- planner could use this index, if it looks empty, for statements about the places of a run.
CREATE INDEX limit_places_state ON kagzi.limit_places (limit_name, namespace_id, state, due_at)
    WHERE state IN ('WAITING', 'CALLED', 'RUNNING');

-- What is paused: the runs of a queue, of a workflow, or of both. Empty names stand for any. The table is almost always empty.
-- Claims read it, and wait for no transaction that writes to it. A pause of a key is in kagzi.run_keys, that of a run in its row.
CREATE TABLE kagzi.pauses (
    task_queue    text     COLLATE "C" NOT NULL DEFAULT '',
    workflow_type text     COLLATE "C" NOT NULL DEFAULT '',
    namespace_id  text     COLLATE "C" NOT NULL,
    parks         boolean  NOT NULL DEFAULT false, -- executions under way stop at their next step
    reason        text,
    actor         text,
    paused_at     timestamptz NOT NULL,
    PRIMARY KEY (task_queue, workflow_type, namespace_id)
);

-- The registry of workers: one row for each start of a worker.
CREATE TABLE kagzi.workers (
    worker_id       uuid              NOT NULL,
    namespace_id    text  COLLATE "C" NOT NULL,
    task_queues     text[]            NOT NULL, -- from which it claims
    left_queues     text[]            NOT NULL DEFAULT '{}', -- from which it claims no more, and of which it may still hold runs
    workflow_types  text[]            NOT NULL,
    handlers        text[],                     -- the versions that the worker has handlers for: "checkout/2"
    status          text  COLLATE "C" NOT NULL CHECK (status IN ('ONLINE', 'DRAINING', 'OFFLINE')),
    hostname        text              NOT NULL DEFAULT '',
    pid             integer           NOT NULL DEFAULT 0,
    build           text              NOT NULL DEFAULT '', -- the version of the program
    schema_version  bigint            NOT NULL DEFAULT 0,  -- the newest migration that the program knows
    sealed          boolean           NOT NULL DEFAULT false, -- its client has a Sealer
    labels          jsonb,
    max_concurrent  integer           NOT NULL DEFAULT 0,
    lease_timeout   interval          NOT NULL,
    fixed_lease     boolean           NOT NULL DEFAULT false, -- it extends no lease
    stale_after     interval          NOT NULL, -- after this time without a heartbeat the worker counts as dead
    backend_pid     integer,                    -- of the connection that sends the heartbeats; NULL if it is not known, for example behind a pooler
    backend_start   timestamptz,                -- process IDs are used again
    server_start    timestamptz,                -- another server, or a restarted one, does not have the backend
    active_count    integer           NOT NULL DEFAULT 0,
    completed_count bigint            NOT NULL DEFAULT 0,
    failed_count    bigint            NOT NULL DEFAULT 0,
    steps_count     bigint            NOT NULL DEFAULT 0,
    completed_rate  double precision  NOT NULL DEFAULT 0, -- runs a second, in the last minute before the heartbeat
    failed_rate     double precision  NOT NULL DEFAULT 0,
    steps_rate      double precision  NOT NULL DEFAULT 0,
    started_at      timestamptz       NOT NULL DEFAULT now(),
    report_number   bigint            NOT NULL DEFAULT 0, -- the number of the last registration or heartbeat: an older one that arrives late changes nothing
    heartbeat_at    timestamptz       NOT NULL DEFAULT now(),
    latest_at       timestamptz       NOT NULL DEFAULT now(), -- the latest time at which it has seen the clock of the database
    hung            jsonb,                      -- the code that hangs in it, for people
    stopped_at      timestamptz,
    release_at      timestamptz,                -- of an OFFLINE worker: when to look next for runs that it still holds
    recheck_keys    boolean           NOT NULL DEFAULT false, -- it may have ended runs without handing on their slots
    PRIMARY KEY (worker_id, namespace_id)
) WITH (fillfactor = 50);

-- Workers that are not OFFLINE.
CREATE INDEX workers_live ON kagzi.workers (worker_id, namespace_id) WHERE status <> 'OFFLINE';

-- Lost workers that may still hold runs.
CREATE INDEX workers_release ON kagzi.workers (release_at, namespace_id) WHERE release_at IS NOT NULL;

-- The log of each worker.
CREATE TABLE kagzi.worker_events (
    worker_id    uuid              NOT NULL,
    event_id     uuid              NOT NULL,
    namespace_id text  COLLATE "C" NOT NULL,
    event        text  COLLATE "C" NOT NULL CHECK (event IN ('STARTED', 'DRAINING', 'STOPPED', 'LOST')),
    detail       text,
    occurred_at  timestamptz       NOT NULL DEFAULT now(),
    PRIMARY KEY (worker_id, event_id, namespace_id)
);

-- Payloads are compressed by lz4 where the server has it: pglz, the default, takes five times as long.
-- +goose StatementBegin
DO $$
DECLARE
    payload record;
BEGIN
    IF EXISTS (SELECT FROM pg_settings WHERE name = 'default_toast_compression' AND 'lz4' = ANY (enumvals)) THEN
        FOR payload IN
            SELECT a.attrelid::regclass AS relation, a.attname AS name
            FROM pg_attribute a
            JOIN pg_class c ON c.oid = a.attrelid
            WHERE c.relnamespace = 'kagzi'::regnamespace AND c.relkind IN ('r', 'p')
                AND a.attnum > 0 AND NOT a.attisdropped AND a.attstorage = 'x'
                AND a.atttypid IN ('bytea'::regtype, 'jsonb'::regtype)
        LOOP
            EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET COMPRESSION lz4', payload.relation, payload.name);
        END LOOP;
    END IF;
END
$$;
-- +goose StatementEnd

-- +goose Down
DROP TABLE kagzi.limit_places;
DROP TABLE kagzi.limits;
DROP TABLE kagzi.worker_events;
DROP TABLE kagzi.workers;
DROP TABLE kagzi.pauses;
DROP TABLE kagzi.key_changes;
DROP TABLE kagzi.run_keys;
DROP TABLE kagzi.queues;
DROP TABLE kagzi.schedules;
DROP TABLE kagzi.subscriptions;
DROP TABLE kagzi.consumers;
DROP TABLE kagzi.awaited_events;
DROP TABLE kagzi.event_waits;
DROP TABLE kagzi.event_keepers;
DROP TABLE kagzi.event_parts;
DROP TABLE kagzi.events;
DROP SEQUENCE kagzi.event_positions;
DROP TABLE kagzi.start_items;
DROP TABLE kagzi.start_windows;
DROP TABLE kagzi.audit_log;
DROP TABLE kagzi.run_events;
DROP TABLE kagzi.signals;
DROP TABLE kagzi.step_runs;
DROP TABLE kagzi.workflow_runs;

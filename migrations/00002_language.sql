-- What signals, children, versions, compensations and operators' verbs need.

-- +goose Up

-- A sleeping run becomes due when its wakeups reach wakeups_awaited: a parent that waits for a thousand children is woken
-- once, and a run that waits for the time alone by nothing. A detached child goes on when its parent ends. A run that was
-- restarted or forked from another says from which.
ALTER TABLE kagzi.workflow_runs
    ADD COLUMN wakeups_awaited bigint  NOT NULL DEFAULT 0,
    ADD COLUMN detached        boolean NOT NULL DEFAULT false,
    ADD COLUMN origin_run_id   uuid;

-- sequence is, of a SIGNAL, which message of its name the step has taken, and of a COMPENSATION its place in the order
-- of registration. Attempt 0 of a COMPENSATION is its registration, the others execute it.
ALTER TABLE kagzi.step_runs
    ADD COLUMN sequence bigint,
    DROP CONSTRAINT step_runs_step_kind_check,
    ADD CONSTRAINT step_runs_step_kind_check CHECK (step_kind IN
        ('FUNCTION', 'SLEEP', 'SIGNAL', 'CHILD_WORKFLOW', 'MARKER', 'COMPENSATION')) NOT VALID;

-- What a worker has handlers for: "checkout/2".
ALTER TABLE kagzi.workers ADD COLUMN handlers text[];

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
ALTER TABLE kagzi.workers DROP COLUMN handlers;
ALTER TABLE kagzi.step_runs
    DROP COLUMN sequence,
    DROP CONSTRAINT step_runs_step_kind_check,
    ADD CONSTRAINT step_runs_step_kind_check CHECK (step_kind IN ('FUNCTION', 'SLEEP', 'SIGNAL', 'CHILD_WORKFLOW', 'MARKER')) NOT VALID;
ALTER TABLE kagzi.workflow_runs
    DROP COLUMN wakeups_awaited,
    DROP COLUMN detached,
    DROP COLUMN origin_run_id;

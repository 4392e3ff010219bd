package clause

// Spec are the columns of a row for store.Spec, which have the same names in kagzi.workflow_runs and kagzi.schedules.
const Spec = `task_queue, workflow_type, coalesce((extract(epoch FROM timeout) * 1000000)::bigint, 0),
	coalesce((extract(epoch FROM execution_timeout) * 1000000)::bigint, 0),
	coalesce((extract(epoch FROM start_within) * 1000000)::bigint, 0), retry_policy,
	coalesce(run_key, ''), coalesce(key_scope = '', false), publishes, priority, metadata, headers,
		coalesce(version, 0)`

const RunColumns = Spec + `, r.run_id, r.external_id, r.status, NULLIF(r.available_at, 'infinity'), r.attempts,
	r.recoveries, r.waiting_on, NULLIF(r.deadline_at, 'infinity'),
	CASE WHEN r.status = 'PENDING' AND r.started_at IS NULL THEN r.start_by END,
	coalesce(r.first_metadata, r.metadata), r.progress, r.error_kind, r.error, r.parent_run_id, r.parent_step_id,
	r.locked_by, r.created_at, r.started_at, r.finished_at,
	r.epoch, r.continued_at, r.schedule_name, r.fire_at, r.origin_run_id, r.quarantined,
	CASE WHEN r.finished_at IS NULL THEN r.paused_at END,
	r.outcome - 'output', r.lease, r.cancel_requested_at, CASE WHEN r.finished_at IS NULL THEN r.inbox_full_at END,
	` + silentSince

// A worker that is not in the registry was pruned after its runs had been made due.
const silentSince = `CASE WHEN r.status = 'RUNNING' AND r.locked_by IS NOT NULL THEN NULLIF(coalesce((
		SELECT CASE WHEN w.status = 'OFFLINE' OR w.heartbeat_at < clock_timestamp() - w.stale_after THEN w.heartbeat_at
			ELSE 'infinity' END
		FROM kagzi.workers w WHERE w.worker_id = r.locked_by AND w.namespace_id = $1
	), LEAST(r.available_at, clock_timestamp())), 'infinity') END`

// StoredInput is the input of a run; the items of a batch, if it is that of one.
const StoredInput = `coalesce(r.input, (
		SELECT string_agg(i.input, ''::bytea ORDER BY i.place) FROM kagzi.start_items i WHERE i.run_id = r.run_id
			AND i.namespace_id = $1
	))`

// OwnEpoch says that the record s belongs to the run's epoch: in front of the IDs of records of earlier ones is a mark.
const OwnEpoch = `s.step_id >= E'\x02'`

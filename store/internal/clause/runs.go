package clause

const RunColumns = `r.run_id, r.external_id, r.task_queue, r.workflow_type, r.version, r.priority, r.status,
	NULLIF(r.available_at, 'infinity'), r.attempts, r.recoveries, r.waiting_on, NULLIF(r.deadline_at, 'infinity'),
		r.metadata, coalesce(r.first_metadata, r.metadata), r.headers, r.progress,
	r.error_kind, r.error, r.parent_run_id, r.parent_step_id, r.locked_by, r.created_at, r.started_at, r.finished_at,
	r.schedule_name, r.fire_at, r.origin_run_id, r.quarantined, CASE WHEN r.finished_at IS NULL THEN r.paused_at END,
		r.outcome, r.run_key, coalesce(r.key_scope = '', false), r.lease, r.cancel_requested_at,
	CASE WHEN r.finished_at IS NULL THEN r.inbox_full_at END, ` + silentSince

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

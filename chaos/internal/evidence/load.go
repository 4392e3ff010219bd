package evidence

import (
	"context"
	"encoding/hex"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// createTables creates the tables of the application that the workloads stand for.
const createTables = `
	CREATE SCHEMA chaos;
	CREATE TABLE chaos.accounts (name text PRIMARY KEY, balance bigint NOT NULL);
	CREATE TABLE chaos.effects (
		effect_id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
		run_id       text NOT NULL,
		step_id      text NOT NULL,
		from_account text NOT NULL,
		to_account   text NOT NULL,
		amount       bigint NOT NULL
	);
	CREATE TABLE chaos.items (item_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, item text NOT NULL,
		run_id text NOT NULL)`

// CreateTables creates the application's tables. A transactional step that moves money changes two
// accounts and inserts one effect.
func CreateTables(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, createTables)
	return err
}

// Load reads what the database and the ledgers in dir say: the final tables, the audit and the application's tables,
// all of one snapshot. The rest is the driver's: Clock, Calls, Ticks, Samples, Injected, Healed and Over.
//
// The database must have the audit of package dbtest and the tables of CreateTables.
func Load(ctx context.Context, pool *pgxpool.Pool, dir string) (*Evidence, error) {
	e := &Evidence{}
	err := pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly},
		func(tx pgx.Tx) error {
			return e.read(ctx, tx)
		})
	if err != nil {
		return nil, fmt.Errorf("read the database: %w", err)
	}
	if e.Ledger, err = ReadLedgers(dir); err != nil {
		return nil, fmt.Errorf("read the ledgers: %w", err)
	}
	return e, e.digest()
}

// The statements return the columns in the order of the fields of their type: see pgx.RowToStructByPos.
const (
	selectChanges = `
		SELECT change_id, at, txid::text::bigint, relation, operation, run_id::text, coalesce(step_id, ''),
			coalesce(attempt, 0),
			coalesce(old_status, ''), coalesce(new_status, ''), coalesce(old_lease::text, ''),
				coalesce(new_lease::text, ''),
			CASE WHEN operation = 'DELETE' THEN jsonb_strip_nulls(old) ELSE 'null' END, coalesce(jsonb_strip_nulls(new),
				'null'), application
		FROM kagzi_audit.changes
		WHERE step_id IS NULL OR left(step_id, 1) <> E'\x01' -- those are records of past epochs, which move or go
		ORDER BY change_id`

	selectRuns = `
		SELECT run_id::text, coalesce(external_id, ''), workflow_type, task_queue, status, coalesce(error_kind, ''),
			coalesce(error, ''),
			coalesce(parent_run_id::text, ''), coalesce(parent_step_id, ''), coalesce(origin_run_id::text, ''),
				coalesce(schedule_name, ''),
			coalesce(fire_at, '0001-01-01 UTC'), coalesce(encode(input, 'hex'), ''), coalesce(encode(output, 'hex'),
				''),
			coalesce(version, 0), attempts, created_at, coalesce(finished_at, '0001-01-01 UTC'),
				coalesce(cancel_requested_at, '0001-01-01 UTC'),
			coalesce(lease::text, ''), quarantined, coalesce(md5(output::text), ''), paused_at IS NOT NULL,
				coalesce(waiting_on::text, ''),
			outcome IS NOT NULL, epoch
		FROM kagzi.workflow_runs ORDER BY run_id`

	// names are unique in all epochs of a run, but for those of waits: each epoch counts these anew
	selectSteps = `
		SELECT run_id::text, regexp_replace(step_id, E'^\x01[0-9]*/', ''), status, step_kind,
			coalesce(child_run_id::text, ''), coalesce(error_kind, ''),
			attempt_number,
			position, coalesce(sequence, 0), coalesce(encode(output, 'hex'), ''), coalesce(nullif(wake_at, 'infinity'),
				'0001-01-01 UTC'),
			coalesce(started_at, '0001-01-01 UTC'), coalesce(finished_at, '0001-01-01 UTC'), coalesce(forgotten_by, 0),
				run_attempt,
			coalesce(md5(output::text), ''), call IS NOT NULL
		FROM kagzi.step_runs ORDER BY run_id, position, step_id, attempt_number`

	selectMessages = `
		SELECT run_id::text, name, signal_id, coalesce(encode(payload, 'hex'), ''), coalesce(consumed_by, ''), sequence
		FROM kagzi.signals ORDER BY run_id, sequence`

	selectEvents = `
		SELECT topic, event_id, coalesce(encode(payload, 'hex'), ''), position, namespace_id
		FROM kagzi.events ORDER BY topic, position`

	selectAwaited = `SELECT topic, event_id FROM kagzi.awaited_events ORDER BY publication, topic, event_id`

	selectReaders = `SELECT topic, consumer, position, looked_at, namespace_id FROM kagzi.subscriptions
		WHERE subscribed ORDER BY topic, consumer`

	selectVerbs = `
		SELECT run_id::text, event, coalesce(other_run_id::text, ''), coalesce(reason, ''), occurred_at
		FROM kagzi.run_events ORDER BY run_id, occurred_at, event_id`

	selectWorkers = `
		SELECT worker_id::text, status, pid, started_at, heartbeat_at, coalesce(stopped_at, '0001-01-01 UTC')
		FROM kagzi.workers ORDER BY started_at, worker_id`

	selectPlans = `SELECT name, created_at, cursor_at, coalesce(problem, '') FROM kagzi.schedules ORDER BY name`

	selectItems = `SELECT item, run_id FROM chaos.items ORDER BY item_id`

	selectEffects = `SELECT run_id, step_id, from_account, to_account, amount FROM chaos.effects ORDER BY effect_id`
)

func (e *Evidence) read(ctx context.Context, tx pgx.Tx) (err error) {
	if e.Changes, err = collect[Change](ctx, tx, selectChanges); err != nil {
		return err
	}
	if e.Runs, err = collect[Run](ctx, tx, selectRuns); err != nil {
		return err
	}
	if e.Steps, err = collect[Step](ctx, tx, selectSteps); err != nil {
		return err
	}
	if e.Messages, err = collect[Message](ctx, tx, selectMessages); err != nil {
		return err
	}
	if e.Events, err = collect[Event](ctx, tx, selectEvents); err != nil {
		return err
	}
	if e.Awaited, err = collect[Awaited](ctx, tx, selectAwaited); err != nil {
		return err
	}
	if e.Readers, err = collect[Reader](ctx, tx, selectReaders); err != nil {
		return err
	}
	if e.Verbs, err = collect[Verb](ctx, tx, selectVerbs); err != nil {
		return err
	}
	if e.Workers, err = collect[Worker](ctx, tx, selectWorkers); err != nil {
		return err
	}
	if e.Plans, err = collect[Plan](ctx, tx, selectPlans); err != nil {
		return err
	}
	if e.Items, err = collect[Item](ctx, tx, selectItems); err != nil {
		return err
	}
	if e.Effects, err = collect[Effect](ctx, tx, selectEffects); err != nil {
		return err
	}
	accounts, err := collect[struct {
		Name    string
		Balance int64
	}](ctx, tx, `SELECT name, balance FROM chaos.accounts`)
	e.Accounts = make(map[string]int64, len(accounts))
	for _, a := range accounts {
		e.Accounts[a.Name] = a.Balance
	}
	return err
}

func collect[T any](ctx context.Context, tx pgx.Tx, sql string) ([]T, error) {
	rows, _ := tx.Query(ctx, sql) // CollectRows returns its error
	return pgx.CollectRows(rows, pgx.RowToStructByPos[T])
}

// digest replaces payloads, which the statements return as hexadecimal digits, by their digests.
func (e *Evidence) digest() error {
	var payloads []*string
	for i := range e.Runs {
		payloads = append(payloads, &e.Runs[i].Input, &e.Runs[i].Output)
	}
	for i := range e.Steps {
		payloads = append(payloads, &e.Steps[i].Output)
	}
	for i := range e.Messages {
		payloads = append(payloads, &e.Messages[i].Payload)
	}
	for i := range e.Events {
		payloads = append(payloads, &e.Events[i].Payload)
	}
	for _, p := range payloads {
		text, err := hex.DecodeString(*p)
		if err != nil {
			return err
		}
		*p = Digest(string(text))
	}
	return nil
}

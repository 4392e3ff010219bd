package kagzi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/doctor"
	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/internal/dbtest"
)

// settings are what roles and databases are set to here and there. Each changes how the server writes values as text, how
// it plans, or what a name means.
var settings = map[string]map[string]string{
	"Plain": {},
	"German": {
		"DateStyle": "German", "TimeZone": "Asia/Kathmandu", "IntervalStyle": "iso_8601", "bytea_output": "escape", "extra_float_digits": "-10",
	},
	"SQL": {
		"DateStyle": "SQL, DMY", "TimeZone": "America/New_York", "IntervalStyle": "sql_standard", "bytea_output": "escape",
		"jit": "on", "jit_above_cost": "0", "lc_messages": "C", "plan_cache_mode": "force_generic_plan",
	},
	"Hostile": {"search_path": "hostile, public", "DateStyle": "Postgres", "IntervalStyle": "postgres_verbose", "bytea_output": "escape"},
}

// hostile is a schema as an application may have one: with functions of the names that Postgres's have, for types for which
// Postgres itself would convert the arguments.
const hostile = `
	CREATE SCHEMA hostile;
	CREATE FUNCTION hostile.power(integer, integer) RETURNS double precision LANGUAGE plpgsql AS $$ BEGIN RAISE 'hostile power'; END $$;
	CREATE FUNCTION hostile.now() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN RAISE 'hostile now'; END $$;
	CREATE FUNCTION hostile.floor(integer) RETURNS double precision LANGUAGE plpgsql AS $$ BEGIN RAISE 'hostile floor'; END $$;
	CREATE FUNCTION hostile.count(integer) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RAISE 'hostile count'; END $$;
	CREATE FUNCTION hostile.set_config(text, text, integer) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE 'hostile set_config'; END $$;
	CREATE TABLE hostile.workflow_runs (nothing integer)`

// Everything works for roles with unusual settings, in every way to send statements that poolers and their users need.
func TestSettings(t *testing.T) {
	t.Parallel()
	for name, params := range settings {
		for _, mode := range []pgx.QueryExecMode{
			pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
		} {
			t.Run(name+"/"+strings.ReplaceAll(mode.String(), " ", "-"), func(t *testing.T) {
				t.Parallel()
				db := dbtest.Database(t)
				if name == "Hostile" {
					execSQL(t, db.Pool, hostile, pgx.QueryExecModeSimpleProtocol)
				}
				cfg := db.Pool.Config()
				for k, v := range params {
					cfg.ConnConfig.RuntimeParams[k] = v
				}
				cfg.ConnConfig.DefaultQueryExecMode = mode
				pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(pool.Close)
				useEverything(t, pool)
			})
		}
	}
}

// A strange value is one that text formats must quote.
const strange = "it's \\ \"odd\", {x}, é, NULL"

// useEverything uses the main features, and checks that all times are UTC, and that workers logged no trouble.
func useEverything(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	logged := &logBuffer{}
	k := &kit{t: t, ctx: testContext(t), pool: pool, c: clientWith(t, pool, ClientConfig{
		Logger: slog.New(slog.NewTextHandler(logged, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})}
	if err := Migrate(k.ctx, pool); err != nil {
		t.Fatal(err)
	}
	done := DefineSignal[string]("done")
	child := Define[string, string]("child")
	parent := Define[string, string]("parent")
	broken := Define[string, string]("broken", noRetry)
	w := newTestWorker(t, k.c, WorkerConfig{Labels: map[string]string{"strange": strange}, PollInterval: 200 * time.Millisecond})
	Handle(w, child, func(ctx Context, in string) (string, error) {
		return in, Sleep(ctx, "nap", 10*time.Millisecond)
	})
	Handle(w, parent, func(ctx Context, in string) (string, error) {
		a, err := Step(ctx, "step", func(ctx context.Context) (string, error) {
			if CurrentStep(ctx).Attempt == 1 {
				return "", errors.New(strange)
			}
			return in, nil
		}, soon)
		if err != nil {
			return "", err
		}
		b, err := StepTx(ctx, "tx", func(ctx context.Context, tx pgx.Tx) (string, error) {
			return a, tx.QueryRow(ctx, `SELECT $1::text`, a).Scan(&a)
		})
		if err != nil {
			return "", err
		}
		c, err := RunChild(ctx, "child", child, b)
		if err != nil {
			return "", err
		}
		d, err := WaitSignal(ctx, done)
		if err != nil || d != c {
			return "", fmt.Errorf("got %q and %q: %w", c, d, err)
		}
		return d, nil
	})
	Handle(w, broken, func(Context, string) (string, error) { return "", errors.New(strange) })
	stop := startWorker(t, w)

	run := begin(k, parent, strange, ID(strange), Metadata{"strange": strange}, Timeout(time.Hour))
	other := begin(k, broken, strange)
	failureOf(k, other, StatusFailed)
	utc := func(v any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range localTimes(v) {
			t.Error(found)
		}
	}
	list := func() []RunInfo {
		t.Helper()
		first, err := k.c.List(k.ctx, RunFilter{Limit: 1})
		utc(first, err)
		rest, err := k.c.List(k.ctx, RunFilter{After: first[0].ID})
		utc(rest, err)
		return append(first, rest...)
	}
	k.waitStatus(run.ID(), StatusSleeping, "signal done")
	if all := list(); len(all) != 3 || string(all[0].Input) != `"it's \\ \"odd\", {x}, é, NULL"` {
		t.Errorf("listed %+v", all)
	}
	if found, err := k.c.List(k.ctx, RunFilter{Metadata: Metadata{"strange": strange}, Status: []Status{StatusSleeping}, ID: strange, Since: time.Now().Add(-time.Hour)}); err != nil || len(found) != 1 {
		t.Errorf("found %v, %v", found, err)
	}
	k.signal(ID(strange), done.With(strange))
	if got := resultOf(k, run); got != strange {
		t.Errorf("got %q", got)
	}
	info, err := run.Info(k.ctx)
	if utc(info, err); info.Status != StatusCompleted || string(info.Input) != string(info.Output) || info.DeadlineAt.Before(time.Now()) {
		t.Errorf("got %+v", info)
	}
	steps, err := k.c.Steps(k.ctx, run.ID())
	if utc(steps, err); len(steps) != 5 || steps[0].Error != strange {
		t.Errorf("steps %+v", steps)
	}
	again, err := k.c.Restart(k.ctx, other.ID(), Reason(strange))
	utc(again, err)
	failureOf(k, find(k.t, k.c, broken, again), StatusFailed)
	if _, err := k.c.Fork(k.ctx, run.ID(), "child"); err != nil {
		t.Error(err)
	}
	k.resume(other.ID(), Reason(strange))
	failureOf(k, other, StatusFailed)
	events, err := k.c.Events(k.ctx, other.ID())
	if utc(events, err); len(events) != 2 || events[0].Reason != strange {
		t.Errorf("events %+v", events)
	}
	begin(k, child, strange, Delay(time.Hour), ID("later"))
	if bulk, err := k.c.CancelAll(k.ctx, RunFilter{ID: "later"}); err != nil || len(bulk.Changed) != 1 {
		t.Errorf("cancelled %+v, %v", bulk, err)
	}
	if err := w.Replay(k.ctx, run.ID()); err != nil {
		t.Error(err)
	}

	k.useSchedules(child, utc)
	k.useFleet(utc)
	found, err := doctor.Examine(k.ctx, pool)
	if utc(found, err); len(found) < 10 {
		t.Errorf("doctor found %v", found)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	gone, _, err := k.c.Workers(k.ctx, WorkerFilter{Labels: map[string]string{"strange": strange}, Status: []string{"OFFLINE"}})
	if utc(gone, err); len(gone) != 1 {
		t.Errorf("gone are %+v", gone)
	}
	for line := range strings.Lines(logged.String()) {
		meant := strings.Contains(line, "run failed") || strings.Contains(line, "step failed")
		slow := strings.Contains(line, "deadline exceeded") || strings.Contains(line, "ticks of a schedule are dropped") // as a busy machine is
		if !meant && !slow {
			t.Errorf("logged %s", line)
		}
	}
}

func (k *kit) useSchedules(wf Workflow[string, string], utc func(any, error)) {
	k.t.Helper()
	k.schedule(Schedule{Name: strange, Every: time.Second, Start: time.Now().Add(-time.Minute), Run: wf.With(strange, Metadata{"a": "b"}), CatchUp: 2})
	waitFor(k.t, "the schedule fires", func() bool {
		runs, err := k.c.List(k.ctx, RunFilter{Schedule: strange, Status: []Status{StatusCompleted}})
		utc(runs, err)
		return len(runs) > 0 && !runs[0].FireTime.IsZero()
	})
	if err := k.c.PauseSchedule(k.ctx, strange); err != nil {
		k.t.Error(err)
	}
	utc(k.c.GetSchedule(k.ctx, strange))
	utc(k.c.ListSchedules(k.ctx, ScheduleFilter{}))
	utc(k.c.NextFires(k.ctx, strange, 3))
	k.schedule(Schedule{Name: "zoned", Cron: "0 3 * * *", TimeZone: "Asia/Kathmandu", Run: wf.With(strange)})
	utc(k.c.NextFires(k.ctx, "zoned", 3))
	from := time.Now().Add(-50 * time.Second)
	if n, err := k.c.BackfillSchedule(k.ctx, strange, from, from.Add(time.Second)); err != nil || n != 1 {
		k.t.Errorf("backfilled %d, %v", n, err)
	}
	if _, err := k.c.TriggerSchedule(k.ctx, strange); err != nil {
		k.t.Error(err)
	}
	if err := k.c.DeleteSchedule(k.ctx, strange); err != nil {
		k.t.Error(err)
	}
}

func (k *kit) useFleet(utc func(any, error)) {
	k.t.Helper()
	workers, total, err := k.c.Workers(k.ctx, WorkerFilter{})
	if utc(workers, err); total != 1 || workers[0].Labels["strange"] != strange {
		k.t.Fatalf("workers %+v", workers)
	}
	utc(k.c.Worker(k.ctx, workers[0].ID))
	utc(k.c.WorkerEvents(k.ctx, workers[0].ID))
	report, err := k.c.Health(k.ctx)
	if utc(report, err); report.Status == health.Unhealthy || report.Workers.Live != 1 || report.At.IsZero() {
		k.t.Errorf("health %+v", report)
	}
	utc(k.c.Stranded(k.ctx))
}

// localTimes lists the times in v that are not in UTC.
func localTimes(v any) (found []string) {
	var walk func(path string, v reflect.Value)
	walk = func(path string, v reflect.Value) {
		if t, ok := reflect.TypeAssert[time.Time](v); ok {
			if t.Location() != time.UTC {
				found = append(found, fmt.Sprintf("%s is %v, in %v", path, t, t.Location()))
			}
			return
		}
		switch v.Kind() {
		case reflect.Pointer, reflect.Interface:
			if !v.IsNil() {
				walk(path, v.Elem())
			}
		case reflect.Slice, reflect.Array:
			for i := range v.Len() {
				walk(fmt.Sprintf("%s[%d]", path, i), v.Index(i))
			}
		case reflect.Struct:
			for i := range v.NumField() {
				if v.Type().Field(i).IsExported() {
					walk(path+"."+v.Type().Field(i).Name, v.Field(i))
				}
			}
		}
	}
	walk(fmt.Sprintf("%T", v), reflect.ValueOf(&v).Elem())
	return found
}

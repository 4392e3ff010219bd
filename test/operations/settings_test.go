package operations_test

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

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/doctor"
	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/campaign"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/testlog"
)

// settings are settings that some roles and databases have. Each changes how the server writes values as text, how it
// plans, or which object a name means.
var settings = map[string]map[string]string{
	"Plain": {},
	"German": {
		"DateStyle": "German", "TimeZone": "Asia/Kathmandu", "IntervalStyle": "iso_8601", "bytea_output": "escape",
		"extra_float_digits": "-10",
	},
	"SQL": {
		"DateStyle": "SQL, DMY", "TimeZone": "America/New_York", "IntervalStyle": "sql_standard",
		"bytea_output": "escape",
		"jit":          "on", "jit_above_cost": "0", "lc_messages": "C", "plan_cache_mode": "force_generic_plan",
	},
	"Hostile": {
		"search_path": "hostile, public", "DateStyle": "Postgres", "IntervalStyle": "postgres_verbose",
		"bytea_output": "escape",
	},
}

// hostile is a schema that an application may have. Its functions have the names of Postgres's own functions, for types
// whose values Postgres itself would convert.
const hostile = `
	CREATE SCHEMA hostile;
	CREATE FUNCTION hostile.power(integer, integer) RETURNS double precision LANGUAGE plpgsql
		AS $$ BEGIN RAISE 'hostile power'; END $$;
	CREATE FUNCTION hostile.now() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN RAISE 'hostile now'; END $$;
	CREATE FUNCTION hostile.floor(integer) RETURNS double precision LANGUAGE plpgsql AS $$ BEGIN RAISE 'hostile floor';
		END $$;
	CREATE FUNCTION hostile.count(integer) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RAISE 'hostile count'; END $$;
	CREATE FUNCTION hostile.set_config(text, text, integer) RETURNS text LANGUAGE plpgsql
		AS $$ BEGIN RAISE 'hostile set_config'; END $$;
	CREATE TABLE hostile.workflow_runs (nothing integer)`

// All features work for roles with unusual settings, in every query mode that users of poolers need.
func TestSettings(t *testing.T) {
	t.Parallel()
	for name, params := range settings {
		for _, mode := range campaign.Some([]pgx.QueryExecMode{
			pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeExec,
			pgx.QueryExecModeDescribeExec, pgx.QueryExecModeSimpleProtocol,
		}, 2) {
			t.Run(name+"/"+strings.ReplaceAll(mode.String(), " ", "-"), func(t *testing.T) {
				t.Parallel()
				db := dbtest.Database(t)
				if name == "Hostile" {
					dbtest.Exec(t, db.Pool, hostile, pgx.QueryExecModeSimpleProtocol)
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
	logged := &testlog.Buffer{}
	k := &kit.Kit{T: t, Ctx: kit.Context(t), Pool: pool, Client: kit.NewClientWith(t, pool, kagzi.ClientConfig{
		Logger: slog.New(slog.NewTextHandler(logged, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})}
	if err := kagzi.Migrate(k.Ctx, pool); err != nil {
		t.Fatal(err)
	}
	done := kagzi.DefineSignal[string]("done")
	child := kagzi.Define[string, string]("child")
	parent := kagzi.Define[string, string]("parent")
	broken := kagzi.Define[string, string]("broken", kit.NoRetry)
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{
		Labels:       map[string]string{"strange": strange},
		PollInterval: 200 * time.Millisecond,
	})
	kagzi.Handle(w, child, func(ctx kagzi.Context, in string) (string, error) {
		return in, kagzi.Sleep(ctx, "nap", 10*time.Millisecond)
	})
	kagzi.Handle(w, parent, func(ctx kagzi.Context, in string) (string, error) {
		a, err := kagzi.Step(ctx, "step", func(ctx context.Context) (string, error) {
			if kagzi.CurrentStep(ctx).Attempt == 1 {
				return "", errors.New(strange)
			}
			return in, nil
		}, kit.Soon)
		if err != nil {
			return "", err
		}
		b, err := kagzi.StepTx(ctx, "tx", func(ctx context.Context, tx pgx.Tx) (string, error) {
			return a, tx.QueryRow(ctx, `SELECT $1::text`, a).Scan(&a)
		})
		if err != nil {
			return "", err
		}
		c, err := kagzi.RunChild(ctx, "child", child, b)
		if err != nil {
			return "", err
		}
		d, err := kagzi.WaitSignal(ctx, done)
		if err != nil || d != c {
			return "", fmt.Errorf("got %q and %q: %w", c, d, err)
		}
		return d, nil
	})
	kagzi.Handle(w, broken, func(kagzi.Context, string) (string, error) { return "", errors.New(strange) })
	stop := kit.StartWorker(t, w)

	run := kit.Begin(k, parent, strange, kagzi.ID(strange), kagzi.Metadata{"strange": strange},
		kagzi.Timeout(time.Hour))
	other := kit.Begin(k, broken, strange)
	kit.FailureOf(k, other, kagzi.StatusFailed)
	utc := func(v any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range localTimes(v) {
			t.Error(found)
		}
	}
	list := func() []kagzi.RunInfo {
		t.Helper()
		first, err := k.Client.List(k.Ctx, kagzi.RunFilter{Limit: 1, Payloads: true})
		utc(first, err)
		rest, err := k.Client.List(k.Ctx, kagzi.RunFilter{After: first[0].ID, Payloads: true})
		utc(rest, err)
		return append(first, rest...)
	}
	k.WaitStatus(run.ID(), kagzi.StatusSleeping, "signal done")
	if all := list(); len(all) != 3 || string(all[0].Input) != `"it's \\ \"odd\", {x}, é, NULL"` {
		t.Errorf("listed %+v", all)
	}
	if found, err := k.Client.List(k.Ctx, kagzi.RunFilter{
		Metadata: kagzi.Metadata{"strange": strange},
		Status:   []kagzi.Status{kagzi.StatusSleeping}, ID: strange, Since: time.Now().Add(-time.Hour),
	}); err != nil ||
		len(found) != 1 {
		t.Errorf("found %v, %v", found, err)
	}
	k.Signal(kagzi.ID(strange), done.With(strange))
	if got := kit.ResultOf(k, run); got != strange {
		t.Errorf("got %q", got)
	}
	info, err := run.Info(k.Ctx)
	if utc(info, err); info.Status != kagzi.StatusCompleted || string(info.Input) != string(info.Output) ||
		info.DeadlineAt.Before(time.Now()) {
		t.Errorf("got %+v", info)
	}
	steps, err := k.Client.Steps(k.Ctx, run.ID())
	if utc(steps, err); len(steps) != 5 || steps[0].Error != strange {
		t.Errorf("steps %+v", steps)
	}
	again, err := admin.New(k.Client).Runs.Restart(k.Ctx, other.ID(), kagzi.Reason(strange))
	utc(again, err)
	kit.FailureOf(k, kit.Find(k.T, k.Client, broken, again), kagzi.StatusFailed)
	if _, err := admin.New(k.Client).Runs.Fork(k.Ctx, run.ID(), "child"); err != nil {
		t.Error(err)
	}
	k.Resume(other.ID(), kagzi.Reason(strange))
	kit.FailureOf(k, other, kagzi.StatusFailed)
	events, err := admin.New(k.Client).Runs.Log(k.Ctx, other.ID())
	if utc(events, err); len(events) != 3 || events[1].Reason != strange {
		t.Errorf("events %+v", events)
	}
	kit.Begin(k, child, strange, kagzi.Delay(time.Hour), kagzi.ID("later"))
	if bulk, err := admin.New(k.Client).Runs.CancelAll(k.Ctx, kagzi.RunFilter{ID: "later"}); err != nil ||
		len(bulk.Changed) != 1 {
		t.Errorf("cancelled %+v, %v", bulk, err)
	}
	if err := w.Replay(k.Ctx, run.ID()); err != nil {
		t.Error(err)
	}

	useSchedules(k, child, utc)
	useFleet(k, utc)
	found, err := doctor.Examine(k.Ctx, pool)
	if utc(found, err); len(found) < 10 {
		t.Errorf("doctor found %v", found)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	gone, _, err := admin.New(k.Client).Workers.List(k.Ctx, admin.WorkerFilter{
		Labels: map[string]string{"strange": strange},
		Status: []string{"OFFLINE"},
	})
	if utc(gone, err); len(gone) != 1 {
		t.Errorf("gone are %+v", gone)
	}
	for line := range strings.Lines(logged.String()) {
		meant := strings.Contains(line, "run failed") || strings.Contains(line, "step failed")
		// as a busy machine is
		slow := strings.Contains(line, "deadline exceeded") || strings.Contains(line, "ticks of a schedule are dropped")
		if !meant && !slow {
			t.Errorf("logged %s", line)
		}
	}
}

func useSchedules(k *kit.Kit, wf kagzi.Workflow[string, string], utc func(any, error)) {
	k.T.Helper()
	k.Schedule(kagzi.Schedule{
		Name: strange, Every: time.Second, Start: time.Now().Add(-time.Minute),
		Run: wf.With(strange, kagzi.Metadata{"a": "b"}), CatchUp: 2,
	})
	await.True(k.T, "the schedule fires", func() bool {
		runs, err := k.Client.List(k.Ctx,
			kagzi.RunFilter{Schedule: strange, Status: []kagzi.Status{kagzi.StatusCompleted}})
		utc(runs, err)
		return len(runs) > 0 && !runs[0].FireTime.IsZero()
	})
	if err := admin.New(k.Client).Schedules.Pause(k.Ctx, strange); err != nil {
		k.T.Error(err)
	}
	utc(admin.New(k.Client).Schedules.Get(k.Ctx, strange))
	utc(admin.New(k.Client).Schedules.List(k.Ctx, admin.ScheduleFilter{}))
	utc(admin.New(k.Client).Schedules.NextFires(k.Ctx, strange, 3))
	k.Schedule(kagzi.Schedule{Name: "zoned", Cron: "0 3 * * *", TimeZone: "Asia/Kathmandu", Run: wf.With(strange)})
	utc(admin.New(k.Client).Schedules.NextFires(k.Ctx, "zoned", 3))
	from := time.Now().Add(-50 * time.Second)
	if n, err := admin.New(k.Client).Schedules.Backfill(k.Ctx, strange, from, from.Add(time.Second)); err != nil ||
		n != 1 {
		k.T.Errorf("backfilled %d, %v", n, err)
	}
	if _, err := admin.New(k.Client).Schedules.Trigger(k.Ctx, strange); err != nil {
		k.T.Error(err)
	}
	if err := k.Client.DeleteSchedule(k.Ctx, strange); err != nil {
		k.T.Error(err)
	}
}

func useFleet(k *kit.Kit, utc func(any, error)) {
	k.T.Helper()
	workers, total, err := admin.New(k.Client).Workers.List(k.Ctx, admin.WorkerFilter{})
	if utc(workers, err); total != 1 || workers[0].Labels["strange"] != strange {
		k.T.Fatalf("workers %+v", workers)
	}
	utc(admin.New(k.Client).Workers.Get(k.Ctx, workers[0].ID))
	utc(admin.New(k.Client).Workers.Log(k.Ctx, workers[0].ID))
	report, err := admin.New(k.Client).Health(k.Ctx)
	if utc(report, err); report.Status == health.Unhealthy || report.Workers.Live != 1 || report.At.IsZero() {
		k.T.Errorf("health %+v", report)
	}
	utc(admin.New(k.Client).Stranded(k.Ctx))
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

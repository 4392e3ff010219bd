package kagzi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/dbtest"
)

func TestBadStartsAreRefusedBeforeAnySQL(t *testing.T) {
	t.Parallel()
	c := newTestClient(t, unreachable(t))
	for name, tt := range map[string]struct {
		opt  StartOption
		says string
	}{
		"EmptyID":          {ID(""), "ID is empty"},
		"LongID":           {ID(strings.Repeat("x", 256)), "256 bytes"},
		"NULInID":          {ID("a\x00"), "U+0000"},
		"InvalidID":        {ID("\xff"), "UTF-8"},
		"EmptyQueue":       {Queue(""), `the queue's name is empty: the default one is "default"`},
		"ControlInQueue":   {Queue("a\n"), "U+000A"},
		"NegativeDelay":    {Delay(-1), "delay"},
		"TinyDelay":        {Delay(30), "30 ns"},
		"PriorityZero":     {Priority(0), "Priority is 0"},
		"PriorityFive":     {Priority(5), "Priority is 5"},
		"VersionZero":      {Version(0), "Version is 0"},
		"VersionNegative":  {Version(-1), "Version is -1"},
		"TimeoutZero":      {Timeout(0), "timeout is 0"},
		"TimeoutTiny":      {Timeout(30), "30 ns"},
		"PolicyBoth":       {RetryPolicy{Forever: true, MaxAttempts: 2}, "Forever"},
		"PolicyFactor":     {RetryPolicy{Factor: 0.5}, "Factor"},
		"PolicyBackoff":    {RetryPolicy{Backoff: 5}, "Backoff"},
		"MetadataKey":      {Metadata{"": "x"}, "Metadata key"},
		"MetadataValue":    {Metadata{"k": "a\x00"}, "NUL"},
		"MetadataTooLarge": {Metadata{"k": strings.Repeat("x", 20<<10)}, "Metadata"},
		"InTxOfNil":        {InTx(nil), "begin a transaction"},
		"ZeroAt":           {At(time.Time{}), "At is the zero time: leave the option out"},
		"AtTooLate":        {At(time.Date(300_000, 1, 1, 0, 0, 0, 0, time.UTC)), "At is in the year 300000: give a time from the year 1 to 9999"},
		"AtYear10000":      {At(time.Date(9999, 12, 31, 23, 0, 0, 0, time.FixedZone("", -3600*5))), "At is in the year 10000"},
		"AtTooEarly":       {At(time.Date(-300_000, 1, 1, 0, 0, 0, 0, time.UTC)), "At is in the year -300000"},
		"NilOption":        {nil, "nil option"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Start(t.Context(), c, Define[int, int]("wf"), 1, tt.opt)
			mustContain(t, err, "start wf", tt.says)
			if strings.Count(err.Error(), "kagzi: ") != 1 || strings.Contains(err.Error(), "\n") {
				t.Errorf("not one line with one prefix: %v", err)
			}
			_, err = Start(t.Context(), c, Define[int, int]("wf", tt.opt), 1)
			mustContain(t, err, tt.says)
			_, err = c.StartMany(t.Context(), []Call{Define[int, int]("wf").With(1), Define[int, int]("wf").With(1, tt.opt)})
			mustContain(t, err, "call 1", tt.says)
		})
	}
	_, err := Start(t.Context(), c, Define[int, int]("wf", Timeout(2*time.Hour)), 1, At(time.Date(9999, 12, 31, 23, 0, 0, 0, time.UTC)))
	mustContain(t, err, "At 9999-12-31T23:00:00Z and timeout 2h0m0s together end in the year 10000")
	for _, name := range []string{"", "a\x00", "\xff", strings.Repeat("x", 256), "a\tb"} {
		_, err := Start(t.Context(), c, Define[int, int](name), 1)
		mustContain(t, err, "workflow name")
	}
	_, err = c.StartMany(t.Context(), []Call{{}})
	mustContain(t, err, "workflow name is empty: name it in kagzi.Define, and make a Call with Workflow.With")
	_, err = Start(t.Context(), c, Define[any, int]("wf"), any(make(chan int)))
	mustContain(t, err, `"wf"`, "chan int")
	_, err = Start(t.Context(), c, Define[any, int]("wf"), any(strings.Repeat("x", 4<<20)))
	if !errors.Is(err, ErrPayloadTooLarge) {
		t.Errorf("got %v", err)
	}
	mustContain(t, err, "4194306", "4194304")
	_, err = c.StartMany(t.Context(), []Call{Define[int, int]("wf").With(1, ID("x")), Define[int, int]("wf").With(2), Define[int, int]("wf").With(3, ID("x"))})
	mustContain(t, err, "calls 0 and 2", `"x"`)
	// All mistakes at once.
	_, err = Start(t.Context(), c, Define[int, int]("wf"), 1, ID(""), Queue(""), Priority(9))
	mustContain(t, err, "ID is empty", "the queue's name is empty", "Priority is 9")
	if strings.Count(err.Error(), "kagzi: ") != 1 || strings.Contains(err.Error(), "\n") {
		t.Errorf("not one line with one prefix: %v", err)
	}
	// What is right gets as far as the database that is not there.
	if _, err = Start(t.Context(), c, Define[int, int]("wf"), 1, ID("x")); err == nil || KindOf(err) != KindDatabase {
		t.Errorf("got %v of kind %q", err, KindOf(err))
	}
}

func TestNewClientAndNewWorkerValidate(t *testing.T) {
	t.Parallel()
	pool := unreachable(t)
	for says, f := range map[string]func() error{
		"pool is nil":       func() error { _, err := NewClient(nil, ClientConfig{}); return err },
		"contains ':'":      func() error { _, err := NewClient(pool, ClientConfig{Namespace: "a:b"}); return err },
		"namespace":         func() error { _, err := NewClient(pool, ClientConfig{Namespace: "a\x00"}); return err },
		"MaxPayload -1":     func() error { _, err := NewClient(pool, ClientConfig{MaxPayload: -1}); return err },
		"client is nil":     func() error { _, err := NewWorker(nil, WorkerConfig{}); return err },
		"migrate: the pool": func() error { return Migrate(t.Context(), nil) },
	} {
		mustContain(t, f(), says)
	}
	_, err := NewClient(nil, ClientConfig{Namespace: "a:b", MaxPayload: -1})
	mustContain(t, err, "pool is nil", "contains ':'", "MaxPayload")
	c := newTestClient(t, pool)
	for says, cfg := range map[string]WorkerConfig{
		"queue":                {Queue: "\x00"},
		"MaxConcurrent is -1":  {MaxConcurrent: -1},
		"PollInterval is 5ns":  {PollInterval: 5},
		"DrainTimeout is -1ns": {DrainTimeout: -1},
		"Heartbeat 1m0s":       {Heartbeat: time.Minute, StaleAfter: time.Minute},
		"Metadata key":         {Labels: map[string]string{"": "x"}},
	} {
		_, err := NewWorker(c, cfg)
		mustContain(t, err, says)
	}
	for says, cfg := range map[string]WorkerConfig{
		"kagzi: StaleAfter is 99ms: give at least 100ms (a time.Duration counts nanoseconds: 30*time.Second)":  {StaleAfter: 99 * time.Millisecond},
		"kagzi: LeaseTimeout is 3ms: give at least 100ms (a time.Duration counts nanoseconds: 30*time.Second)": {LeaseTimeout: 3 * time.Millisecond},
		"kagzi: Heartbeat is 9ms: give at least 10ms (a time.Duration counts nanoseconds: 30*time.Second)":     {Heartbeat: 9 * time.Millisecond},
		"kagzi: Coordinator: Grace is 5ns: give at least 1.5s, or set NoGrace (a time.Duration counts nanoseconds: 3*time.Second); Batch is -1: give between 1 and 10,000": {
			Coordinator: CoordinatorConfig{Grace: 5, Batch: -1},
		},
	} {
		if _, err := NewWorker(c, cfg); err == nil || err.Error() != says {
			t.Errorf("%+v: %v, want only %s", cfg, err, says)
		}
	}
	_, err = NewWorker(c, WorkerConfig{Queue: "\xff", MaxConcurrent: -1, PollInterval: 5})
	mustContain(t, err, "queue", "MaxConcurrent", "PollInterval")
}

func TestMistakesOfHandleComeFromRunTogether(t *testing.T) {
	t.Parallel()
	c := newTestClient(t, unreachable(t))
	fn := func(Context, int) (int, error) { return 0, nil }
	w := newTestWorker(t, c, WorkerConfig{})
	mustContain(t, w.Run(t.Context()), "no handler", "kagzi.Handle")
	Handle(w, Define[int, int]("a"), fn)
	Handle(w, Define[int, int]("a"), fn, Version(2))
	Handle(w, Define[int, int]("a"), fn)
	Handle[int, int](w, Define[int, int]("b"), nil)
	Handle(w, Define[int, int](""), fn)
	Handle(w, Define[int, int]("c"), fn, Version(-1))
	mustContain(t, w.Run(t.Context()), `two handlers for version 1 of workflow "a"`, `kagzi: handler of "b": `, "function is nil", "workflow name is empty", "Version is -1")
}

func TestStartBeatsDefineAndTheLastWins(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("wf", Queue("shop"), Priority(2), Metadata{"a": "1"}, Timeout(time.Hour), Version(3), RetryPolicy{MaxAttempts: 7})
	get := func(opts ...StartOption) RunInfo {
		t.Helper()
		info, err := begin(k, wf, 1, opts...).Info(k.ctx)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	info := get()
	if info.Queue != "shop" || info.Priority != 2 || info.Version != 3 || !reflect.DeepEqual(info.Metadata, Metadata{"a": "1"}) ||
		info.DeadlineAt.Sub(info.AvailableAt) != time.Hour {
		t.Errorf("defaults: %+v", info)
	}
	info = get(Version(4), Priority(4), Queue("a"), Queue("b"), Metadata{"b": "2"}, Timeout(time.Minute), Delay(time.Hour))
	if info.Queue != "b" || info.Priority != 4 || info.Version != 4 || !reflect.DeepEqual(info.Metadata, Metadata{"b": "2"}) ||
		info.DeadlineAt.Sub(info.AvailableAt) != time.Minute || info.AvailableAt.Sub(info.CreatedAt) != time.Hour {
		t.Errorf("start's own: %+v", info)
	}
	at := time.Now().Add(48 * time.Hour).Truncate(time.Microsecond)
	if info = get(Delay(time.Minute), At(at)); !info.AvailableAt.Equal(at) {
		t.Errorf("At after Delay: available at %v, want %v", info.AvailableAt, at)
	}
	if info = get(At(at), Delay(time.Minute)); info.AvailableAt.Sub(info.CreatedAt) != time.Minute {
		t.Errorf("Delay after At: %+v", info)
	}
	started, err := k.c.StartMany(k.ctx, []Call{wf.With(1), wf.With(1, Priority(1))}, Priority(3))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{3, 1} {
		if info, _ := k.c.Get(k.ctx, started[i].ID); info.Priority != want {
			t.Errorf("call %d has priority %d, want %d", i, info.Priority, want)
		}
	}
}

// runError runs a worker, which must refuse.
func runError(t *testing.T, pool *pgxpool.Pool) error {
	t.Helper()
	c := clientWith(t, pool, ClientConfig{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	w := newTestWorker(t, c, WorkerConfig{})
	Handle(w, Define[int, int]("wf"), func(Context, int) (int, error) { return 0, nil })
	ctx, cancel := context.WithTimeout(testContext(t), 10*time.Second)
	defer cancel()
	err := w.Run(ctx)
	if ctx.Err() != nil {
		t.Fatal("Run has not refused")
	}
	return err
}

func TestDatabasesThatDoNotFit(t *testing.T) {
	t.Parallel()
	t.Run("SchemaMissing", func(t *testing.T) {
		t.Parallel()
		pool := dbtest.Pool(t, dbtest.Empty())
		mustContain(t, runError(t, pool), "schema missing", "kagzi.Migrate")
		c := newTestClient(t, pool)
		_, err := Start(t.Context(), c, Define[int, int]("wf"), 1)
		mustContain(t, err, "schema missing", "kagzi.Migrate")
		_, err = c.List(t.Context(), RunFilter{})
		mustContain(t, err, "kagzi.Migrate")
		_, err = c.Get(t.Context(), ID("x"))
		mustContain(t, err, "kagzi.Migrate")
		if err := Migrate(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
		if _, err = Start(t.Context(), c, Define[int, int]("wf"), 1); err != nil {
			t.Errorf("after Migrate: %v", err)
		}
	})
	for name, tt := range map[string]struct{ sql, says string }{
		"SchemaOlder": {`DELETE FROM kagzi.schema_migrations WHERE version_id > 0`, "kagzi.Migrate"},
		"SchemaNewer": {`INSERT INTO kagzi.schema_migrations (version_id, is_applied, oldest_program) VALUES (9999, true, 9998)`, "upgrade"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := dbtest.Pool(t, dbtest.Empty())
			if err := Migrate(t.Context(), pool); err != nil {
				t.Fatal(err)
			}
			if _, err := pool.Exec(t.Context(), tt.sql); err != nil {
				t.Fatal(err)
			}
			mustContain(t, runError(t, pool), tt.says)
			_, err := Start(t.Context(), newTestClient(t, pool), Define[int, int]("wf"), 1)
			mustContain(t, err, tt.says)
		})
	}
	t.Run("PoolTooSmall", func(t *testing.T) {
		t.Parallel()
		mustContain(t, runError(t, dbtest.Pool(t, dbtest.MaxConns(1))), "1 connection", "pool_max_conns")
	})
	t.Run("ReadOnly", func(t *testing.T) {
		t.Parallel()
		db := dbtest.Database(t)
		mustContain(t, runError(t, poolWith(t, db.DSN, "default_transaction_read_only", "on")), "read-only", "primary")
	})
	for name, tt := range map[string]struct{ grants, lacks string }{
		"NoRights":       {``, `USAGE on schema kagzi and SELECT, INSERT, UPDATE, DELETE on the tables of schema kagzi`},
		"NoTables":       {`GRANT USAGE ON SCHEMA kagzi TO %[1]s`, `SELECT, INSERT, UPDATE, DELETE on the tables of schema kagzi and SELECT on kagzi.schema_migrations`},
		"OnlyReading":    {`GRANT USAGE ON SCHEMA kagzi TO %[1]s; GRANT SELECT ON ALL TABLES IN SCHEMA kagzi TO %[1]s`, `INSERT, UPDATE, DELETE on the tables of schema kagzi: `},
		"NotTheRegistry": {`GRANT USAGE ON SCHEMA kagzi TO %[1]s; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA kagzi TO %[1]s; REVOKE INSERT ON kagzi.workers FROM %[1]s`, `INSERT on kagzi.workers: `},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Database(t, dbtest.Empty()) // its privileges go with it
			if err := Migrate(t.Context(), db.Pool); err != nil {
				t.Fatal(err)
			}
			role := "role_" + db.Name
			for _, sql := range []string{fmt.Sprintf(`CREATE ROLE %s`, role), strings.ReplaceAll(tt.grants, "%[1]s", role)} {
				if _, err := db.Pool.Exec(t.Context(), sql); err != nil {
					t.Fatal(err)
				}
			}
			t.Cleanup(func() {
				ctx := context.Background()
				_, err := db.Pool.Exec(ctx, fmt.Sprintf(`DROP OWNED BY %[1]s; DROP ROLE %[1]s`, role))
				if err != nil {
					t.Error(err)
				}
			})
			pool := poolWith(t, db.DSN, "role", role)
			says := fmt.Sprintf("user %q lacks %s", role, tt.lacks)
			advice := fmt.Sprintf(`GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA kagzi TO "%s"`, role)
			coordinator := newTestCoordinator(t, newTestClient(t, pool), CoordinatorConfig{})
			for _, err := range []error{runError(t, pool), coordinator.Run(testContext(t))} {
				mustContain(t, err, says, advice)
				if text := err.Error(); !strings.HasPrefix(text, "kagzi: ") || strings.Contains(text, "kagzi: kagzi") || strings.Contains(text, ": check rights") {
					t.Errorf("the prefix is not there once: %s", text)
				}
			}
			if err := Migrate(t.Context(), pool); err != nil {
				mustContain(t, err, "kagzi: migrate: "+says, advice)
			} else if strings.HasPrefix(tt.lacks, "USAGE") {
				t.Error("Migrate saw a schema that this user may not see")
			}
		})
	}
}

// An option that has no meaning for a verb is refused before any SQL, with what to do instead.
func TestOptionsWithoutMeaningAreRefused(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := newTestClient(t, unreachable(t))
	worker := newTestWorker(t, c, WorkerConfig{})
	all := RunFilter{Workflow: "wf"}
	schedule := Schedule{Name: "s", Every: time.Hour, Run: Define[int, int]("wf").With(1)}
	const (
		grace   = "kagzi: %s: Grace is for Cancel and CancelAll, which wait for steps under way: leave it out"
		forget  = "kagzi: %s: Forget is for Resume and ResumeAll, which try failures again: leave it out"
		dry     = "kagzi: %s: DryRun is for the verbs that take a RunFilter, such as CancelAll: leave it out, or call one of these with a filter"
		inherit = "kagzi: %s: InheritCompensations is for Fork: a restart begins at the beginning, and registers its own"
		id      = "kagzi: %s: an ID is that of one run: leave it out, and each new run has the ID of its old one"
		input   = "kagzi: %s: NewInput is for Restart and Fork of one run: leave it out, and each new run has the input of its old one"
	)
	for _, tt := range []struct {
		op, want string
		err      error
	}{
		{"cancel x", forget, c.Cancel(ctx, ID("x"), Forget("step"))},
		{"cancel x", dry, c.Cancel(ctx, ID("x"), DryRun())},
		{"terminate x", grace, c.Terminate(ctx, ID("x"), Grace(time.Second))},
		{"terminate x", forget, c.Terminate(ctx, ID("x"), Forget())},
		{"terminate x", dry, c.Terminate(ctx, ID("x"), DryRun())},
		{"resume x", grace, c.Resume(ctx, ID("x"), Grace(time.Second))},
		{"resume x", dry, c.Resume(ctx, ID("x"), DryRun())},
		{"cancel all", forget, second(c.CancelAll(ctx, all, Forget("step")))},
		{"terminate all", grace, second(c.TerminateAll(ctx, all, Grace(time.Second)))},
		{"resume all", grace, second(c.ResumeAll(ctx, all, Grace(time.Second)))},
		{"restart x", inherit, second(c.Restart(ctx, ID("x"), InheritCompensations()))},
		{"restart x", dry, second(c.Restart(ctx, ID("x"), DryRun()))},
		{`fork x from step "s"`, dry, second(c.Fork(ctx, ID("x"), "s", DryRun()))},
		{"restart all", id, second(c.RestartAll(ctx, all, ID("y")))},
		{"restart all", input, second(c.RestartAll(ctx, all, NewInput(1)))},
		{"restart all", inherit, second(c.RestartAll(ctx, all, InheritCompensations()))},
		{"fork all", id, second(c.ForkAll(ctx, all, "s", ID("y")))},
		{"fork all", input, second(c.ForkAll(ctx, all, "s", NewInput(1)))},
		{`signal x with "approved"`, grace, c.Signal(ctx, ID("x"), approved.With("a"), Grace(time.Second))},
		{"schedule s", grace, c.Schedule(ctx, schedule, Grace(time.Second))},
		{"pause schedule s", dry, c.PauseSchedule(ctx, "s", DryRun())},
		{"resume schedule s", forget, c.ResumeSchedule(ctx, "s", Forget("step"))},
		{"delete schedule s", dry, c.DeleteSchedule(ctx, "s", DryRun())},
		{"trigger schedule s", dry, second(c.TriggerSchedule(ctx, "s", DryRun()))},
		{"backfill schedule s", dry, second(c.BackfillSchedule(ctx, "s", time.Now(), time.Now(), DryRun()))},
		{"drain worker w", grace, c.Drain(ctx, "w", Grace(time.Second))},
		{`drain queue "q"`, dry, second(c.DrainQueue(ctx, "q", DryRun()))},
		{"force worker w offline", grace, c.ForceOffline(ctx, "w", Grace(time.Second))},
		{"replay x", "kagzi: %s: DefaultVersion is for Handle: leave it out, and the run's own version is taken, or give a Version", worker.Replay(ctx, ID("x"), DefaultVersion())},
	} {
		op := strings.NewReplacer("schedule s", `schedule "s"`).Replace(tt.op)
		if want := fmt.Sprintf(tt.want, op); tt.err == nil || tt.err.Error() != want || KindOf(tt.err) != KindBadRequest {
			t.Errorf("got  %v, of kind %s\nwant %s", tt.err, KindOf(tt.err), want)
		}
	}

	Handle(worker, Define[int, int]("wf"), func(Context, int) (int, error) { return 0, nil }, AllowAdditions())
	mustContain(t, worker.Run(ctx), `handler of "wf": AllowAdditions is for a replay: leave it out`)
}

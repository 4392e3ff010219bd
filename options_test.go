package kagzi_test

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

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

func TestBadStartsAreRefusedBeforeAnySQL(t *testing.T) {
	t.Parallel()
	c := kit.NewClient(t, kit.Unreachable(t))
	for name, tt := range map[string]struct {
		opt  kagzi.StartOption
		says string
	}{
		"EmptyID":          {kagzi.ID(""), "ID is empty"},
		"LongID":           {kagzi.ID(strings.Repeat("x", 256)), "256 bytes"},
		"NULInID":          {kagzi.ID("a\x00"), "U+0000"},
		"InvalidID":        {kagzi.ID("\xff"), "UTF-8"},
		"EmptyQueue":       {kagzi.Queue(""), `the queue's name is empty: the default one is "default"`},
		"ControlInQueue":   {kagzi.Queue("a\n"), "U+000A"},
		"NegativeDelay":    {kagzi.Delay(-1), "delay"},
		"TinyDelay":        {kagzi.Delay(30), "30 ns"},
		"PriorityZero":     {kagzi.Priority(0), "Priority is 0"},
		"PriorityFive":     {kagzi.Priority(5), "Priority is 5"},
		"VersionZero":      {kagzi.Version(0), "Version is 0"},
		"VersionNegative":  {kagzi.Version(-1), "Version is -1"},
		"TimeoutZero":      {kagzi.Timeout(0), "timeout is 0"},
		"TimeoutTiny":      {kagzi.Timeout(30), "30 ns"},
		"PolicyBoth":       {kagzi.RetryPolicy{Forever: true, MaxAttempts: 2}, "Forever"},
		"PolicyFactor":     {kagzi.RetryPolicy{Factor: 0.5}, "Factor"},
		"PolicyBackoff":    {kagzi.RetryPolicy{Backoff: 5}, "Backoff"},
		"MetadataKey":      {kagzi.Metadata{"": "x"}, "Metadata key"},
		"MetadataValue":    {kagzi.Metadata{"k": "a\x00"}, "NUL"},
		"MetadataTooLarge": {kagzi.Metadata{"k": strings.Repeat("x", 20<<10)}, "Metadata"},
		"InTxOfNil":        {kagzi.InTx(nil), "begin a transaction"},
		"ZeroAt":           {kagzi.At(time.Time{}), "At is the zero time: leave the option out"},
		"AtTooLate": {
			kagzi.At(time.Date(300_000, 1, 1, 0, 0, 0, 0, time.UTC)),
			"At is in the year 300000: give a time from the year 1 to 9999",
		},
		"AtYear10000": {
			kagzi.At(time.Date(9999, 12, 31, 23, 0, 0, 0, time.FixedZone("", -3600*5))),
			"At is in the year 10000",
		},
		"AtTooEarly":     {kagzi.At(time.Date(-300_000, 1, 1, 0, 0, 0, 0, time.UTC)), "At is in the year -300000"},
		"EmptyKey":       {kagzi.Key(""), "Key is empty: give what the runs are to be limited by"},
		"LongKey":        {kagzi.Key(strings.Repeat("x", 256)), "256 bytes"},
		"InvalidKey":     {kagzi.Key("\xff"), "UTF-8"},
		"EmptyGroup":     {kagzi.Group(""), "Group is empty"},
		"ControlInGroup": {kagzi.Group("a\n"), "U+000A"},
		"NilOption":      {nil, "nil option"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := kagzi.Start(t.Context(), c, kagzi.Define[int, int]("wf"), 1, tt.opt)
			kit.MustContain(t, err, "start wf", tt.says)
			if strings.Count(err.Error(), "kagzi: ") != 1 || strings.Contains(err.Error(), "\n") {
				t.Errorf("not one line with one prefix: %v", err)
			}
			_, err = kagzi.Start(t.Context(), c, kagzi.Define[int, int]("wf", tt.opt), 1)
			kit.MustContain(t, err, tt.says)
			_, err = c.StartMany(t.Context(), []kagzi.Call{
				kagzi.Define[int, int]("wf").With(1),
				kagzi.Define[int, int]("wf").With(1, tt.opt),
			})
			kit.MustContain(t, err, "call 1", tt.says)
		})
	}
	_, err := kagzi.Start(t.Context(), c, kagzi.Define[int, int]("wf", kagzi.Timeout(2*time.Hour)), 1,
		kagzi.At(time.Date(9999, 12, 31, 23, 0, 0, 0, time.UTC)))
	kit.MustContain(t, err, "At 9999-12-31T23:00:00Z and timeout 2h0m0s together end in the year 10000")
	_, err = kagzi.Start(t.Context(), c, kagzi.Define[int, int]("wf", kagzi.Group("mail")), 1, kagzi.Key("tenant-7"))
	kit.MustContain(t, err, "there are a Key and a Group (one may be a default of Define): a run has one of them")
	for _, name := range []string{"", "a\x00", "\xff", strings.Repeat("x", 256), "a\tb"} {
		_, err := kagzi.Start(t.Context(), c, kagzi.Define[int, int](name), 1)
		kit.MustContain(t, err, "workflow name")
	}
	_, err = c.StartMany(t.Context(), []kagzi.Call{{}})
	kit.MustContain(t, err, "workflow name is empty: name it in kagzi.Define, and make a Call with Workflow.With")
	_, err = kagzi.Start(t.Context(), c, kagzi.Define[any, int]("wf"), any(make(chan int)))
	kit.MustContain(t, err, `"wf"`, "chan int")
	_, err = kagzi.Start(t.Context(), c, kagzi.Define[any, int]("wf"), any(strings.Repeat("x", 4<<20)))
	if !errors.Is(err, kagzi.ErrPayloadTooLarge) {
		t.Errorf("got %v", err)
	}
	kit.MustContain(t, err, "4194306", "4194304")
	_, err = c.StartMany(t.Context(), []kagzi.Call{
		kagzi.Define[int, int]("wf").With(1, kagzi.ID("x")),
		kagzi.Define[int, int]("wf").With(2), kagzi.Define[int, int]("wf").With(3, kagzi.ID("x")),
	})
	kit.MustContain(t, err, "calls 0 and 2", `"x"`)
	// All mistakes at once.
	_, err = kagzi.Start(t.Context(), c, kagzi.Define[int, int]("wf"), 1, kagzi.ID(""), kagzi.Queue(""),
		kagzi.Priority(9))
	kit.MustContain(t, err, "ID is empty", "the queue's name is empty", "Priority is 9")
	if strings.Count(err.Error(), "kagzi: ") != 1 || strings.Contains(err.Error(), "\n") {
		t.Errorf("not one line with one prefix: %v", err)
	}
	// A valid call reaches the database, which does not exist.
	if _, err = kagzi.Start(t.Context(), c, kagzi.Define[int, int]("wf"), 1, kagzi.ID("x")); err == nil ||
		kagzi.KindOf(err) != kind.Database {
		t.Errorf("got %v of kind %q", err, kagzi.KindOf(err))
	}
}

func TestNewClientAndNewWorkerValidate(t *testing.T) {
	t.Parallel()
	pool := kit.Unreachable(t)
	for says, f := range map[string]func() error{
		"pool is nil": func() error { _, err := kagzi.NewClient(nil, kagzi.ClientConfig{}); return err },
		"contains ':'": func() error {
			_, err := kagzi.NewClient(pool, kagzi.ClientConfig{Namespace: "a:b"})
			return err
		},
		"namespace": func() error {
			_, err := kagzi.NewClient(pool, kagzi.ClientConfig{Namespace: "a\x00"})
			return err
		},
		"MaxPayload -1": func() error {
			_, err := kagzi.NewClient(pool, kagzi.ClientConfig{MaxPayload: -1})
			return err
		},
		"client is nil":     func() error { _, err := kagzi.NewWorker(nil, kagzi.WorkerConfig{}); return err },
		"migrate: the pool": func() error { return kagzi.Migrate(t.Context(), nil) },
	} {
		kit.MustContain(t, f(), says)
	}
	_, err := kagzi.NewClient(nil, kagzi.ClientConfig{Namespace: "a:b", MaxPayload: -1})
	kit.MustContain(t, err, "pool is nil", "contains ':'", "MaxPayload")
	c := kit.NewClient(t, pool)
	for says, cfg := range map[string]kagzi.WorkerConfig{
		"queue":                {Queue: "\x00"},
		"MaxConcurrent is -1":  {MaxConcurrent: -1},
		"Queue and Queues":     {Queue: "a", Queues: map[string]int{"b": 1}},
		"Queues is empty":      {Queues: map[string]int{}},
		"share of 0":           {Queues: map[string]int{"a": 0}},
		"share of 1000001":     {Queues: map[string]int{"a": 1_000_001}},
		"name is empty":        {Queues: map[string]int{"": 1}},
		"PollInterval is 5ns":  {PollInterval: 5},
		"DrainTimeout is -1ns": {DrainTimeout: -1},
		"Heartbeat 1m0s":       {Heartbeat: time.Minute, StaleAfter: time.Minute},
		"Metadata key":         {Labels: map[string]string{"": "x"}},
	} {
		_, err := kagzi.NewWorker(c, cfg)
		kit.MustContain(t, err, says)
	}
	for says, cfg := range map[string]kagzi.WorkerConfig{
		"kagzi: StaleAfter is 99ms: give at least 100ms (a time.Duration counts nanoseconds: " +
			"30*time.Second)": {StaleAfter: 99 * time.Millisecond},
		"kagzi: LeaseTimeout is 3ms: give at least 100ms (a time.Duration counts nanoseconds: " +
			"30*time.Second)": {LeaseTimeout: 3 * time.Millisecond},
		"kagzi: Heartbeat is 9ms: give at least 10ms (a time.Duration counts nanoseconds: " +
			"30*time.Second)": {Heartbeat: 9 * time.Millisecond},
		"kagzi: Coordinator: Grace is 5ns: give at least 1.5s, or set NoGrace (a time.Duration counts nanoseconds: " +
			"3*time.Second); Batch is -1: give between 1 and 10,000": {
			Coordinator: kagzi.CoordinatorConfig{Grace: 5, Batch: -1},
		},
	} {
		if _, err := kagzi.NewWorker(c, cfg); err == nil || err.Error() != says {
			t.Errorf("%+v: %v, want only %s", cfg, err, says)
		}
	}
	_, err = kagzi.NewWorker(c, kagzi.WorkerConfig{Queue: "\xff", MaxConcurrent: -1, PollInterval: 5})
	kit.MustContain(t, err, "queue", "MaxConcurrent", "PollInterval")
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{})
	kit.MustContain(t, w.AddQueue("", 1), "add queue", "name is empty")
	kit.MustContain(t, w.AddQueue("a", -1), "add queue", "share of -1")
	kit.MustContain(t, w.RemoveQueue("default"), `remove queue "default"`, "only queue")
	if err := errors.Join(w.AddQueue("a", 1), w.AddQueue("a", 2), w.RemoveQueue("default"),
		w.RemoveQueue("default")); err != nil {
		t.Error(err)
	}
	kit.MustContain(t, w.RemoveQueue("a"), "only queue")
	kit.MustContain(t, (&kagzi.Worker{}).AddQueue("a", 1), "NewWorker")
	kit.MustContain(t, (*kagzi.Worker)(nil).RemoveQueue("a"), "NewWorker")
}

func TestMistakesOfHandleComeFromRunTogether(t *testing.T) {
	t.Parallel()
	c := kit.NewClient(t, kit.Unreachable(t))
	fn := func(kagzi.Context, int) (int, error) { return 0, nil }
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{})
	kit.MustContain(t, w.Run(t.Context()), "no handler", "kagzi.Handle")
	kagzi.Handle(w, kagzi.Define[int, int]("a"), fn)
	kagzi.Handle(w, kagzi.Define[int, int]("a"), fn, kagzi.Version(2))
	kagzi.Handle(w, kagzi.Define[int, int]("a"), fn)
	kagzi.Handle[int, int](w, kagzi.Define[int, int]("b"), nil)
	kagzi.HandleDo(w, kagzi.DefineDo[int]("d"), nil)
	kagzi.Handle(w, kagzi.Define[int, int](""), fn)
	kagzi.Handle(w, kagzi.Define[int, int]("c"), fn, kagzi.Version(-1))
	kit.MustContain(t, w.Run(t.Context()), `two handlers for version 1 of workflow "a"`, `kagzi: handler of "b": `,
		`kagzi: handler of "d": `,
		"function is nil", "workflow name is empty", "Version is -1")
}

func TestStartBeatsDefineAndTheLastWins(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, int]("wf", kagzi.Queue("shop"), kagzi.Priority(2), kagzi.Metadata{"a": "1"},
		kagzi.Timeout(time.Hour), kagzi.Version(3), kagzi.RetryPolicy{MaxAttempts: 7})
	get := func(opts ...kagzi.StartOption) kagzi.RunInfo {
		t.Helper()
		info, err := kit.Begin(k, wf, 1, opts...).Info(k.Ctx)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	info := get()
	if info.Queue != "shop" || info.Priority != 2 || info.Version != 3 ||
		!reflect.DeepEqual(info.Metadata, kagzi.Metadata{"a": "1"}) ||
		info.DeadlineAt.Sub(info.AvailableAt) != time.Hour {
		t.Errorf("defaults: %+v", info)
	}
	info = get(kagzi.Version(4), kagzi.Priority(4), kagzi.Queue("a"), kagzi.Queue("b"), kagzi.Metadata{"b": "2"},
		kagzi.Timeout(time.Minute), kagzi.Delay(time.Hour))
	if info.Queue != "b" || info.Priority != 4 || info.Version != 4 ||
		!reflect.DeepEqual(info.Metadata, kagzi.Metadata{"b": "2"}) ||
		info.DeadlineAt.Sub(info.AvailableAt) != time.Minute || info.AvailableAt.Sub(info.CreatedAt) != time.Hour {
		t.Errorf("start's own: %+v", info)
	}
	at := time.Now().Add(48 * time.Hour).Truncate(time.Microsecond)
	if info = get(kagzi.Delay(time.Minute), kagzi.At(at)); !info.AvailableAt.Equal(at) {
		t.Errorf("At after Delay: available at %v, want %v", info.AvailableAt, at)
	}
	if info = get(kagzi.At(at), kagzi.Delay(time.Minute)); info.AvailableAt.Sub(info.CreatedAt) != time.Minute {
		t.Errorf("Delay after At: %+v", info)
	}
	started, err := k.Client.StartMany(k.Ctx, []kagzi.Call{wf.With(1), wf.With(1, kagzi.Priority(1))},
		kagzi.Priority(3))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{3, 1} {
		if info, _ := k.Client.Get(k.Ctx, started[i].ID); info.Priority != want {
			t.Errorf("call %d has priority %d, want %d", i, info.Priority, want)
		}
	}
}

// runError runs a worker, which must refuse.
func runError(t *testing.T, pool *pgxpool.Pool) error {
	t.Helper()
	c := kit.NewClientWith(t, pool, kagzi.ClientConfig{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{})
	kagzi.Handle(w, kagzi.Define[int, int]("wf"), func(kagzi.Context, int) (int, error) { return 0, nil })
	ctx, cancel := context.WithTimeout(kit.Context(t), await.Patience)
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
		kit.MustContain(t, runError(t, pool), "schema missing", "kagzi.Migrate")
		c := kit.NewClient(t, pool)
		_, err := kagzi.Start(t.Context(), c, kagzi.Define[int, int]("wf"), 1)
		kit.MustContain(t, err, "schema missing", "kagzi.Migrate")
		_, err = c.List(t.Context(), kagzi.RunFilter{})
		kit.MustContain(t, err, "kagzi.Migrate")
		_, err = c.Get(t.Context(), kagzi.ID("x"))
		kit.MustContain(t, err, "kagzi.Migrate")
		if err := kagzi.Migrate(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
		if _, err = kagzi.Start(t.Context(), c, kagzi.Define[int, int]("wf"), 1); err != nil {
			t.Errorf("after Migrate: %v", err)
		}
	})
	for name, tt := range map[string]struct{ sql, says string }{
		"SchemaOlder": {`DELETE FROM kagzi.schema_migrations WHERE version_id > 0`, "kagzi.Migrate"},
		"SchemaNewer": {`INSERT INTO kagzi.schema_migrations (version_id, is_applied, oldest_program)
			VALUES (9999, true, 9998)`, "upgrade"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := dbtest.Pool(t, dbtest.Empty())
			if err := kagzi.Migrate(t.Context(), pool); err != nil {
				t.Fatal(err)
			}
			if _, err := pool.Exec(t.Context(), tt.sql); err != nil {
				t.Fatal(err)
			}
			kit.MustContain(t, runError(t, pool), tt.says)
			_, err := kagzi.Start(t.Context(), kit.NewClient(t, pool), kagzi.Define[int, int]("wf"), 1)
			kit.MustContain(t, err, tt.says)
		})
	}
	t.Run("PoolTooSmall", func(t *testing.T) {
		t.Parallel()
		kit.MustContain(t, runError(t, dbtest.Pool(t, dbtest.MaxConns(1))), "1 connection", "pool_max_conns")
	})
	t.Run("ReadOnly", func(t *testing.T) {
		t.Parallel()
		db := dbtest.Database(t)
		kit.MustContain(t, runError(t,
			dbtest.OpenPool(t, db.DSN, dbtest.Setting("default_transaction_read_only", "on"))), "read-only", "primary")
	})
	for name, tt := range map[string]struct{ grants, lacks string }{
		"NoRights": {``, `USAGE on schema kagzi and SELECT, INSERT, UPDATE, DELETE, TRUNCATE on the tables of ` +
			`schema kagzi and SELECT, USAGE on kagzi.event_positions`},
		"NoTables": {`GRANT USAGE ON SCHEMA kagzi TO %[1]s`, `SELECT, INSERT, UPDATE, DELETE, TRUNCATE on the ` +
			`tables of schema kagzi and SELECT, USAGE on kagzi.event_positions and SELECT on kagzi.schema_migrations`},
		"OnlyReading": {
			`GRANT USAGE ON SCHEMA kagzi TO %[1]s; GRANT SELECT ON ALL TABLES IN SCHEMA kagzi TO %[1]s`,
			`INSERT, UPDATE, DELETE, TRUNCATE on the tables of schema kagzi and SELECT, USAGE on ` +
				`kagzi.event_positions: `,
		},
		"NotTheRegistry": {`GRANT USAGE ON SCHEMA kagzi TO %[1]s; GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE
			ON ALL TABLES IN SCHEMA kagzi TO %[1]s; GRANT SELECT, USAGE
			ON ALL SEQUENCES IN SCHEMA kagzi TO %[1]s; REVOKE INSERT ON kagzi.workers
			FROM %[1]s`, `INSERT on kagzi.workers: `},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Database(t, dbtest.Empty()) // its privileges go with it
			if err := kagzi.Migrate(t.Context(), db.Pool); err != nil {
				t.Fatal(err)
			}
			role := "role_" + db.Name
			for _, sql := range []string{
				fmt.Sprintf(`CREATE ROLE %s`, role),
				strings.ReplaceAll(tt.grants, "%[1]s", role),
			} {
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
			pool := dbtest.OpenPool(t, db.DSN, dbtest.Setting("role", role))
			says := fmt.Sprintf("user %q lacks %s", role, tt.lacks)
			advice := fmt.Sprintf(`GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON ALL TABLES IN SCHEMA kagzi `+
				`TO "%s"`, role)
			coordinator := kit.NewCoordinator(t, kit.NewClient(t, pool), kagzi.CoordinatorConfig{})
			for _, err := range []error{runError(t, pool), coordinator.Run(kit.Context(t))} {
				kit.MustContain(t, err, says, advice)
				if text := err.Error(); !strings.HasPrefix(text, "kagzi: ") || strings.Contains(text, "kagzi: kagzi") ||
					strings.Contains(text, ": check rights") {
					t.Errorf("the prefix is not there once: %s", text)
				}
			}
			if err := kagzi.Migrate(t.Context(), pool); err != nil {
				// It may be a client's user.
				kit.MustContain(t, err, "kagzi: migrate: "+strings.ReplaceAll(says, ", TRUNCATE", ""),
					strings.ReplaceAll(advice, ", TRUNCATE", ""))
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
	c := kit.NewClient(t, kit.Unreachable(t))
	worker := kit.NewWorker(t, c, kagzi.WorkerConfig{})
	all := kagzi.RunFilter{Workflow: "wf"}
	schedule := kagzi.Schedule{Name: "s", Every: time.Hour, Run: kagzi.Define[int, int]("wf").With(1)}
	const (
		grace  = "kagzi: %s: Grace is for Cancel and CancelAll, which wait for steps under way: leave it out"
		forget = "kagzi: %s: Forget is for Resume and ResumeAll, which try failures again: leave it out"
		dry    = "kagzi: %s: DryRun is for the verbs that take a RunFilter, such as CancelAll: leave it out, or " +
			"call one of these with a filter"
		inherit = "kagzi: %s: InheritCompensations is for Fork: a restart begins at the beginning, and registers " +
			"its own"
		id    = "kagzi: %s: an ID is that of one run: leave it out, and each new run has the ID of its old one"
		input = "kagzi: %s: NewInput is for Restart and Fork of one run: leave it out, and each new run has the " +
			"input of its old one"
	)
	for _, tt := range []struct {
		op, want string
		err      error
	}{
		{"cancel x", forget, c.Cancel(ctx, kagzi.ID("x"), admin.Forget("step"))},
		{"cancel x", dry, c.Cancel(ctx, kagzi.ID("x"), admin.DryRun())},
		{"terminate x", grace, admin.New(c).Runs.Terminate(ctx, kagzi.ID("x"), kagzi.Grace(time.Second))},
		{"terminate x", forget, admin.New(c).Runs.Terminate(ctx, kagzi.ID("x"), admin.Forget())},
		{"terminate x", dry, admin.New(c).Runs.Terminate(ctx, kagzi.ID("x"), admin.DryRun())},
		{"resume x", grace, admin.New(c).Runs.Resume(ctx, kagzi.ID("x"), kagzi.Grace(time.Second))},
		{"resume x", dry, admin.New(c).Runs.Resume(ctx, kagzi.ID("x"), admin.DryRun())},
		{"cancel all", forget, kit.Second(admin.New(c).Runs.CancelAll(ctx, all, admin.Forget("step")))},
		{"terminate all", grace, kit.Second(admin.New(c).Runs.TerminateAll(ctx, all, kagzi.Grace(time.Second)))},
		{"resume all", grace, kit.Second(admin.New(c).Runs.ResumeAll(ctx, all, kagzi.Grace(time.Second)))},
		{"restart x", inherit, kit.Second(admin.New(c).Runs.Restart(ctx, kagzi.ID("x"), admin.InheritCompensations()))},
		{"restart x", dry, kit.Second(admin.New(c).Runs.Restart(ctx, kagzi.ID("x"), admin.DryRun()))},
		{`fork x from step "s"`, dry, kit.Second(admin.New(c).Runs.Fork(ctx, kagzi.ID("x"), "s", admin.DryRun()))},
		{"restart all", id, kit.Second(admin.New(c).Runs.RestartAll(ctx, all, kagzi.ID("y")))},
		{"restart all", input, kit.Second(admin.New(c).Runs.RestartAll(ctx, all, admin.NewInput(1)))},
		{"restart all", inherit, kit.Second(admin.New(c).Runs.RestartAll(ctx, all, admin.InheritCompensations()))},
		{"fork all", id, kit.Second(admin.New(c).Runs.ForkAll(ctx, all, "s", kagzi.ID("y")))},
		{"fork all", input, kit.Second(admin.New(c).Runs.ForkAll(ctx, all, "s", admin.NewInput(1)))},
		{`signal x with "approved"`, grace, c.Signal(ctx, kagzi.ID("x"), kit.Approved.With("a"),
			kagzi.Grace(time.Second))},
		{"schedule s", grace, c.Schedule(ctx, schedule, kagzi.Grace(time.Second))},
		{"pause schedule s", dry, admin.New(c).Schedules.Pause(ctx, "s", admin.DryRun())},
		{"resume schedule s", forget, admin.New(c).Schedules.Resume(ctx, "s", admin.Forget("step"))},
		{"delete schedule s", dry, c.DeleteSchedule(ctx, "s", admin.DryRun())},
		{"trigger schedule s", dry, kit.Second(admin.New(c).Schedules.Trigger(ctx, "s", admin.DryRun()))},
		{
			"backfill schedule s", dry,
			kit.Second(admin.New(c).Schedules.Backfill(ctx, "s", time.Now(), time.Now(), admin.DryRun())),
		},
		{"drain worker w", grace, admin.New(c).Workers.Drain(ctx, "w", kagzi.Grace(time.Second))},
		{`drain queue "q"`, dry, kit.Second(admin.New(c).Workers.DrainQueue(ctx, "q", admin.DryRun()))},
		{"force worker w offline", grace, admin.New(c).Workers.ForceOffline(ctx, "w", kagzi.Grace(time.Second))},
		{"replay x", "kagzi: %s: DefaultVersion is for Handle: leave it out to replay the run's own version, or give " +
			"a Version", worker.Replay(ctx, kagzi.ID("x"), kagzi.DefaultVersion())},
	} {
		op := strings.NewReplacer("schedule s", `schedule "s"`).Replace(tt.op)
		if want := fmt.Sprintf(tt.want, op); tt.err == nil || tt.err.Error() != want ||
			kagzi.KindOf(tt.err) != kind.BadRequest {
			t.Errorf("got  %v, of kind %s\nwant %s", tt.err, kagzi.KindOf(tt.err), want)
		}
	}

	kagzi.Handle(worker, kagzi.Define[int, int]("wf"), func(kagzi.Context, int) (int, error) { return 0, nil },
		kagzi.AllowAdditions())
	kit.MustContain(t, worker.Run(ctx), `handler of "wf": AllowAdditions is for a replay: leave it out`)
}

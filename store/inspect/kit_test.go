package inspect

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/store/internal/clause"
	"github.com/kagzi/kagzi/waits"
)

func types(h ...store.WorkflowVersions) func(*store.ClaimRequest) {
	return func(r *store.ClaimRequest) { r.Types = h }
}

// registering returns the record of a step's first registered compensation.
func registering(r *store.ClaimedRun, step string, place int64, change ...func(*store.Record)) *store.Record {
	rec := &store.Record{
		StepRow: store.StepRow{
			RunID: r.RunID, StepID: store.CompensationID(step), Attempt: 1, FirstAttempt: 1, RunAttempt: 1,
			Status: store.Running,
			Kind:   store.KindCompensation,
			Output: []byte("hash of " + step), Position: place,
		},
		Lease: r.Lease, Wake: -1, Worker: uuid.New(), Compensation: &store.Compensation{
			Spec:  store.Spec{Type: "undo"},
			Input: []byte(step),
		},
	}
	for _, f := range change {
		f(rec)
	}
	return rec
}

func consumerOf(name string, topics ...string) *store.Consumer {
	return &store.Consumer{
		Name: name, Key: store.OwnGroup(name), Topics: topics, Queue: "queue", Priority: 2, LeastWake: 30 * time.Second,
		MostWake: 24 * time.Hour, PauseOnFailure: true,
	}
}

func subscribe(t *testing.T, s *both, consumers ...*store.Consumer) {
	t.Helper()
	if err := s.Consumers.Register(t.Context(), consumers); err != nil {
		t.Fatal(err)
	}
}

// consumersRequest claims runs of the consumers.
func consumersRequest(names ...string) store.ClaimRequest {
	req := keyedRequest(10)
	req.Types = nil
	for _, name := range names {
		req.Types = append(req.Types, store.WorkflowVersions{Type: name, Versions: []int{1}, Default: 1})
	}
	return req
}

// due returns the runs that a claim takes of the consumers.
func due(t *testing.T, s *both, names ...string) []*store.ClaimedRun {
	t.Helper()
	return claim(t, s, consumersRequest(names...)).Runs
}

// mustRun returns the run that a claim takes of the consumer.
func mustRun(t *testing.T, s *both, name string) *store.ClaimedRun {
	t.Helper()
	runs := due(t, s, name)
	if len(runs) != 1 || runs[0].Type != name {
		t.Fatalf("claimed %+v, want a run of consumer %s", runs, name)
	}
	return runs[0]
}

func mustNotRun(t *testing.T, s *both, names ...string) {
	t.Helper()
	if runs := due(t, s, names...); len(runs) != 0 {
		t.Fatalf("claimed %s, want no run", runs[0].Type)
	}
}

// look makes a claim look at the keys of all consumers, as does a worker that ends a run.
func look(t *testing.T, s *both) {
	t.Helper()
	exec(t, s.pool, `INSERT INTO kagzi.key_changes (key_scope, namespace_id, run_key) SELECT DISTINCT '', namespace_id,
		run_key FROM kagzi.consumers`)
}

func peek(t *testing.T, s *both, consumer, topic string) store.Peek {
	t.Helper()
	p, err := s.Consumers.Peek(t.Context(), consumer, topic, 1000, 1<<20, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// consumes returns the end of a run that has looked at p, and consumes the events with the IDs.
func consumption(p store.Peek, topic string, ids ...string) store.ConsumedTopic {
	c := store.ConsumedTopic{Topic: topic, Looked: p.Settled}
	for _, e := range p.Events {
		if slices.Contains(ids, e.ID) {
			c.Ranges = append(c.Ranges, [2]int64{e.After, e.Position})
		}
	}
	return c
}

// completes ends the run, and makes a claim look at the keys of all consumers.
func completes(t *testing.T, s *both, r *store.ClaimedRun, state string, wake time.Time,
	topics ...store.ConsumedTopic,
) {
	t.Helper()
	e := finish(r)
	named, err := pg.AskOne[[]string](t.Context(), s.pool, `SELECT ARRAY(SELECT topic FROM kagzi.subscriptions
		WHERE consumer = $1 AND namespace_id = $2 AND subscribed)`, r.Type, s.namespace)
	if err != nil {
		t.Fatal(err)
	}
	e.Output, e.Consumed = []byte(state), &store.Consumed{Consumer: r.Type, Named: named, WakeAt: wake, Topics: topics}
	flush(t, s, &store.Flush{Finishes: []*store.Finish{e}})
	look(t, s)
}

func mustDelete(t *testing.T, s *both, id uuid.UUID) []uuid.UUID {
	t.Helper()
	ids, err := s.Deletions.Delete(t.Context(), nil, id, store.Why{Reason: "why", Actor: "who"}, false)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

func ofKey(key string) func(*store.NewRun) { return func(r *store.NewRun) { r.Key.Name = key } }

func inGroup(name string) func(*store.NewRun) {
	return func(r *store.NewRun) { r.Key = store.Key{Name: name, Group: true} }
}

func keyedRequest(n int) store.ClaimRequest {
	req := request(n)
	req.Keys = &store.KeysRequest{Plain: n, Keyed: n, Most: 500}
	return req
}

func runIDs(runs []*store.ClaimedRun) (ids []uuid.UUID) {
	for _, r := range runs {
		ids = append(ids, r.RunID)
	}
	return ids
}

func sorted(ids []uuid.UUID) []uuid.UUID {
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	return ids
}

// ask asks the limit for the step of each run.
func askLimit(t *testing.T, s *both, limit string, runs ...*store.ClaimedRun) []store.LimitAnswer {
	t.Helper()
	return serve(t, s, limit, store.LimitRequest{Asks: placesOf(runs...)}).Answers
}

func serve(t *testing.T, s *both, limit string, req store.LimitRequest) store.LimitResult {
	t.Helper()
	out, err := s.Limits.Serve(t.Context(), []string{limit}, req)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func placesOf(runs ...*store.ClaimedRun) (places []store.Place) {
	for _, r := range runs {
		places = append(places, store.Place{RunID: r.RunID, Lease: r.Lease, StepID: "step"})
	}
	return places
}

func setLimit(t *testing.T, s *both, l store.StepLimit) {
	t.Helper()
	l.Burst = max(l.Burst, 1)
	if err := s.Limits.Set(t.Context(), l, store.Why{}); err != nil {
		t.Fatal(err)
	}
}

// losing returns a store behind a proxy, and one that is not.
func losing(t *testing.T) (through, direct *both, proxy *pgproxy.Proxy) {
	t.Helper()
	db := dbtest.Database(t)
	dbtest.Audit(t, db.Pool)
	proxy = pgproxy.Start(t, db.DSN)
	return newBoth(poolWith(t, proxy.DSN(), func(c *pgxpool.Config) { c.MaxConns = 2 }), "test"),
		newBoth(db.Pool, "test"), proxy
}

// A loss is of an answer, which the server has given after the commit, or of a request, which it has not seen.
var losses = map[string]func(*pgproxy.Proxy, string) *pgproxy.Drop{
	"Answer":  func(p *pgproxy.Proxy, part string) *pgproxy.Drop { return p.DropAck(pgproxy.Contains(part)) },
	"Request": func(p *pgproxy.Proxy, part string) *pgproxy.Drop { return p.DropRequest(pgproxy.Contains(part)) },
}

// eachLoss runs a test for both kinds of loss; done says whether the server did what it was asked.
func eachLoss(t *testing.T, test func(t *testing.T, lose func(*pgproxy.Proxy, string) *pgproxy.Drop, done bool)) {
	t.Parallel()
	for name, lose := range losses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, lose, name == "Answer")
		})
	}
}

func happened(t *testing.T, d *pgproxy.Drop) {
	t.Helper()
	select {
	case <-d.Done(): // a moment after the client noticed
	case <-time.After(await.Patience):
		t.Fatal("nothing was lost: the test shows nothing")
	}
}

func wantAway(t *testing.T, err error) {
	t.Helper()
	if !pg.Unavailable(err) {
		t.Fatalf("error %v, want one that says that the outcome is unknown", err)
	}
}

func messageTo(run uuid.UUID, id string) store.Message {
	return store.Message{RunID: run, Name: "signal", ID: id, Payload: []byte(id)}
}

func send(t *testing.T, s *both, m store.Message) store.Signalled {
	t.Helper()
	g, err := s.Messages.Send(t.Context(), nil, m)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// fillInbox stores n messages that the run does not read, as if they had been sent.
func fillInbox(t *testing.T, s *both, run uuid.UUID, n int) {
	t.Helper()
	exec(t, s.pool, `INSERT INTO kagzi.signals (run_id, name, sequence, namespace_id, signal_id)
		SELECT run_id, 'other', wakeups + n, namespace_id, 'other' || n FROM kagzi.workflow_runs,
			generate_series(1, $2::int) n WHERE run_id = $1`, run, n)
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET wakeups = wakeups + $2 WHERE run_id = $1`, run, n)
}

func pause(t *testing.T, s *both, p store.Pause) {
	t.Helper()
	if _, err := s.Pauses.Pause(t.Context(), nil, p); err != nil {
		t.Fatal(err)
	}
}

func unpause(t *testing.T, s *both, p store.Pause) {
	t.Helper()
	if _, err := s.Pauses.Unpause(t.Context(), nil, p); err != nil {
		t.Fatal(err)
	}
}

func second[T any](_ T, err error) error { return err }

func ifActive(policy string) func(*store.NewRun) {
	return func(r *store.NewRun) { r.IfActive = policy }
}

func ifEnded(policy string) func(*store.NewRun) { return func(r *store.NewRun) { r.IfEnded = policy } }

// outcome says what a start has come to: new, existed, replaced, or how it was refused.
func outcome(out []store.StartedRun, err error) string {
	switch {
	case errors.Is(err, store.ErrIDTaken) && errors.Is(err, store.ErrIDConflict):
		return "taken and conflict"
	case errors.Is(err, store.ErrIDTaken):
		return "taken"
	case errors.Is(err, store.ErrIDConflict):
		return "conflict"
	case err != nil:
		return err.Error()
	}
	switch r := out[0]; {
	case r.Existed:
		return "existed"
	case r.Replaced != uuid.Nil:
		return "replaced"
	default:
		return "new"
	}
}

func mustSetQueue(t *testing.T, s *both, q store.QueueLimits) {
	t.Helper()
	q.Queue = "queue"
	if err := s.Limits.SetQueue(t.Context(), q, store.Why{}); err != nil {
		t.Fatal(err)
	}
}

func mustSetKey(t *testing.T, s *both, key string, k store.KeyLimits) {
	t.Helper()
	if err := s.Limits.SetKey(t.Context(), "queue", key, k, store.Why{}); err != nil {
		t.Fatal(err)
	}
}

// settleAll settles the queues as a coordinator does some time after their limits were changed.
func settleAll(t *testing.T, s *both) []string {
	t.Helper()
	exec(t, s.pool, `UPDATE kagzi.queues SET changed_at = changed_at - interval '1 hour' WHERE NOT settled`)
	settled, err := s.Limits.SettleQueues(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return settled
}

func slotsHeld(t *testing.T, s *both) int {
	t.Helper()
	return one[int](t, s.pool, `SELECT count(*) FROM kagzi.workflow_runs WHERE `+clause.Holds)
}

// ReleaseLost releases the runs of silent workers, as a coordinator does after it has waited long enough.
func (s *both) ReleaseLost(ctx context.Context) ([]store.LostWorker, error) {
	silent, err := s.Workers.Silent(ctx)
	if err != nil {
		return nil, err
	}
	silent = slices.DeleteFunc(silent, func(w store.UnresponsiveWorker) bool { return !w.Silent })
	lost, err := s.Workers.ReleaseUnresponsive(ctx, silent, "no heartbeat")
	again, err2 := s.Workers.ReleaseRemaining(ctx)
	return append(lost, again...), errors.Join(err, err2)
}

// saveTemplate saves a schedule that fires daily. Its runs have a Timeout of a minute.
func saveTemplate(t *testing.T, s *both, name string) *store.Template {
	t.Helper()
	template := &store.Template{
		ID: uuid.Must(uuid.NewV7()), Name: name, CatchUp: 1,
		Spec:   store.Spec{Queue: "queue", Type: "type", Priority: 3, Timeout: time.Minute},
		Timing: []byte("{}"),
		Cron:   "@daily", Input: []byte("input"), Next: time.Now().Add(time.Hour), Cursor: time.Now(),
	}
	edit(t, s, nil, template.ID, &store.Edit{Save: template})
	return template
}

// edit applies e to the schedule.
func edit(t *testing.T, s *both, tx pgx.Tx, id uuid.UUID, e *store.Edit) {
	t.Helper()
	if _, err := s.Schedules.Edit(t.Context(), tx, id, func(time.Time, *store.Template) (*store.Edit, error) {
		return e, nil
	}); err != nil {
		t.Fatal(err)
	}
}

// statementsIn returns the SQL statements of packages in some folders.
func statementsIn(t *testing.T, folders ...string) map[string]string {
	t.Helper()
	return dbtest.Statements(t, []string{"../../internal/pg", "../internal/clause"}, folders...)
}

func TestMain(m *testing.M) { dbtest.Main(m) }

// open returns a store of the namespace "test" in a database of its own.
func open(t *testing.T, opts ...dbtest.Option) *both {
	t.Helper()
	return newBoth(dbtest.Pool(t, opts...), "test")
}

// newRun returns a run to start, changed by the given functions.
func newRun(change ...func(*store.NewRun)) store.NewRun {
	r := store.NewRun{
		RunID: uuid.Must(uuid.NewV7()), Spec: store.Spec{Queue: "queue", Type: "type", Priority: 3},
		InputHash: []byte("hash"),
		Input:     []byte("input"),
	}
	for _, f := range change {
		f(&r)
	}
	return r
}

func ofType(name string) func(*store.NewRun) { return func(r *store.NewRun) { r.Type = name } }

func ofVersion(v int) func(*store.NewRun) { return func(r *store.NewRun) { r.Version = v } }

func withPriority(p int) func(*store.NewRun) { return func(r *store.NewRun) { r.Priority = p } }

func withID(id string) func(*store.NewRun) { return func(r *store.NewRun) { r.ExternalID = id } }

func withDelay(d time.Duration) func(*store.NewRun) { return func(r *store.NewRun) { r.Delay = d } }

func withTimeout(d time.Duration) func(*store.NewRun) {
	return func(r *store.NewRun) { r.Timeout = d }
}

func withParent(id uuid.UUID) func(*store.NewRun) {
	return func(r *store.NewRun) { r.Parent = id } // without a step, which only a flush writes with it
}

// start starts runs and returns their IDs.
func start(t *testing.T, s *both, runs ...store.NewRun) []uuid.UUID {
	t.Helper()
	started, err := s.Starts.Start(t.Context(), nil, runs)
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]uuid.UUID, len(started))
	for i, r := range started {
		if r.Existed {
			t.Fatalf("run %d existed", i)
		}
		ids[i] = r.RunID
	}
	return ids
}

// many returns n runs to start.
func many(n int, change ...func(*store.NewRun)) []store.NewRun {
	runs := make([]store.NewRun, n)
	for i := range runs {
		runs[i] = newRun(change...)
	}
	return runs
}

// request asks for up to n runs of the type "type".
func request(n int, change ...func(*store.ClaimRequest)) store.ClaimRequest {
	req := store.ClaimRequest{
		Queue: "queue", Types: []store.WorkflowVersions{{Type: "type", Versions: []int{1}, Default: 1}}, Limit: n,
		Worker: uuid.New(), Lease: uuid.New(), LeaseTimeout: time.Minute, Ahead: 24 * time.Hour,
	}
	for _, f := range change {
		f(&req)
	}
	return req
}

func claim(t *testing.T, s *both, req store.ClaimRequest) store.Claim {
	t.Helper()
	c, err := s.Claims.Claim(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// claimIDs claims and returns which runs, in the order of the answer.
func claimIDs(t *testing.T, s *both, req store.ClaimRequest) []uuid.UUID {
	t.Helper()
	var ids []uuid.UUID
	for _, r := range claim(t, s, req).Runs {
		ids = append(ids, r.RunID)
	}
	return ids
}

// running starts n runs and claims them.
func running(t *testing.T, s *both, n int, change ...func(*store.NewRun)) []*store.ClaimedRun {
	t.Helper()
	start(t, s, many(n, change...)...)
	c := claim(t, s, request(n))
	if len(c.Runs) != n {
		t.Fatalf("claimed %d runs, want %d", len(c.Runs), n)
	}
	return c.Runs
}

func held(r *store.ClaimedRun) store.HeldRun { return store.HeldRun{RunID: r.RunID, Lease: r.Lease} }

// record is the record of a step's first attempt, which succeeded.
func record(r *store.ClaimedRun, step, output string) *store.Record {
	return &store.Record{
		StepRow: store.StepRow{
			RunID: r.RunID, StepID: step, Attempt: 1, FirstAttempt: 1, RunAttempt: 1, Status: store.Completed,
			Kind: store.KindFunction, Output: []byte(output),
		},
		Lease: r.Lease, Wake: -1, Worker: uuid.New(),
	}
}

func finish(r *store.ClaimedRun) *store.Finish {
	return &store.Finish{
		RunID: r.RunID, Lease: r.Lease, Parent: r.ParentRunID, Status: store.Completed,
		Output: []byte("output"),
	}
}

// sleep is a suspension for d, as an execution writes it that has seen all wake-ups up to its claim.
func sleep(r *store.ClaimedRun, d time.Duration) *store.Suspension {
	return &store.Suspension{
		RunID: r.RunID, Lease: r.Lease, Status: store.Sleeping, Wake: d, Seen: r.Wakeups, Need: 1,
		WaitingOn: waits.List{{Kind: waits.Timer}},
	}
}

func flush(t *testing.T, s *both, f *store.Flush) {
	t.Helper()
	if err := s.Records.Flush(t.Context(), f); err != nil {
		t.Fatal(err)
	}
}

func wantOutcome(t *testing.T, what string, got, want store.Outcome) {
	t.Helper()
	if got != want {
		t.Errorf("%s: outcome %d, want %d (1 done, 2 busy, 3 lost)", what, got, want)
	}
}

func wantError(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
}

// A tableRow holds the columns of a run's row that tests check.
type tableRow struct {
	Status     string
	Lease      *uuid.UUID
	LockedBy   *uuid.UUID
	Due        bool    // available_at has come
	In         float64 // seconds until available_at; infinity as it is; 0 if it is NULL
	Wakeups    int64
	Attempts   int
	Recoveries int
	Version    *int
	WaitingOn  *string
	ErrorKind  *string
	Ended      bool
}

// readRow reads a run's row.
func readRow(t *testing.T, db pg.DB, id uuid.UUID) tableRow {
	t.Helper()
	rows, err := db.Query(t.Context(), `
		SELECT status, lease, locked_by, coalesce(available_at <= clock_timestamp(), false),
			coalesce(CASE WHEN available_at = 'infinity' THEN 'infinity'
				ELSE extract(epoch FROM available_at - clock_timestamp())::float8 END, 0),
			wakeups, attempts, recoveries, version, waiting_on -> 0 ->> 'kind', error_kind, finished_at IS NOT NULL
		FROM kagzi.workflow_runs WHERE run_id = $1`, id)
	if err != nil {
		t.Fatal(err)
	}
	row, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[tableRow])
	if err != nil {
		t.Fatal(err)
	}
	return row
}

// exec runs a statement of the test's own.
func exec(t *testing.T, db pg.DB, sql string, args ...any) {
	t.Helper()
	for _, sql := range dbtest.Instead(t, ofOwner(t, db), sql) {
		_, err := ofOwner(t, db).Exec(t.Context(), sql, args...)
		if pool, ok := db.(*pgxpool.Pool); ok && err != nil {
			err = dbtest.ExecOnShards(t.Context(), dbtest.Owner(t, pool), err, sql, args...)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// ofOwner returns the owner's pool for a pool, because these statements are the test's own. Transactions stay as they
// are.
func ofOwner(t *testing.T, db pg.DB) pg.DB {
	if pool, ok := db.(*pgxpool.Pool); ok {
		return dbtest.Owner(t, pool)
	}
	return db
}

// one reads a single value.
func one[T any](t *testing.T, db pg.DB, sql string, args ...any) (v T) {
	t.Helper()
	if err := ofOwner(t, db).QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// column reads a column of values.
func column[T any](t *testing.T, db pg.DB, sql string, args ...any) []T {
	t.Helper()
	rows, _ := ofOwner(t, db).Query(t.Context(), sql, args...) // the error comes with the rows
	values, err := pgx.CollectRows(rows, pgx.RowTo[T])
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// expire makes the leases of running runs end now.
func expire(t *testing.T, s *both, ids ...uuid.UUID) {
	t.Helper()
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET available_at = now() - interval '1 ms'
		WHERE run_id = ANY ($1)`, ids)
}

// begin opens a transaction that is rolled back at the test's end, if it is open still.
func begin(t *testing.T, s *both) pgx.Tx {
	t.Helper()
	tx, err := s.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func rollback(t *testing.T, tx pgx.Tx) {
	t.Helper()
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func commit(t *testing.T, tx pgx.Tx) {
	t.Helper()
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// lockRow locks a run's row in tx, as a user's transaction does.
func lockRow(t *testing.T, tx pgx.Tx, id uuid.UUID) {
	t.Helper()
	exec(t, tx, `SELECT FROM kagzi.workflow_runs WHERE run_id = $1 FOR UPDATE`, id)
}

// poolWith returns another pool of the database, with a changed configuration.
func poolWith(t *testing.T, dsn string, change func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	if change == nil {
		return dbtest.OpenPool(t, dsn)
	}
	return dbtest.OpenPool(t, dsn, change)
}

// cancelled returns the error of a Cancel.
func cancelled(_ *store.CancelledRuns, err error) error { return err }

func mustCancel(t *testing.T, s *both, id uuid.UUID, reason string) {
	t.Helper()
	if err := cancelled(s.Runs.Cancel(t.Context(), nil, id, store.Why{Reason: reason}, 0)); err != nil {
		t.Fatal(err)
	}
}

// named returns events of the topic with these IDs.
func named(topic string, ids ...string) (events []*store.NewEvent) {
	for _, id := range ids {
		events = append(events, &store.NewEvent{
			Topic: topic, ID: id, Named: true, Title: "title of " + id,
			Payload: []byte(`"` + id + `"`),
		})
	}
	return events
}

func publishes(t *testing.T, s *both, events ...*store.NewEvent) {
	t.Helper()
	publishIn(t, s, nil, events...)
}

func publishIn(t *testing.T, s *both, tx pgx.Tx, events ...*store.NewEvent) {
	t.Helper()
	if _, err := s.Topics.Publish(t.Context(), tx, events); err != nil {
		t.Fatal(err)
	}
}

// ---- partitions ----

func rotateEvents(t *testing.T, s *both) {
	t.Helper()
	if err := s.Topics.RotateEvents(t.Context(), 60*time.Hour, 60*time.Hour); err != nil {
		t.Fatal(err)
	}
}

// ageEvents makes everything older.
func ageEvents(t *testing.T, s *both, hours int) {
	t.Helper()
	exec(t, s.pool, `UPDATE kagzi.event_parts SET opened_at = opened_at - $1 * interval '1 hour',
		closed_at = closed_at - $1 * interval '1 hour'`, hours)
}

// limitKeys limits each key of the queue to n runs, with held until their ends.
func limitKeys(t *testing.T, s *both, n int, held bool) {
	t.Helper()
	exec(t, s.pool, `INSERT INTO kagzi.queues (task_queue, namespace_id, key_max_running, held)
		VALUES ('queue', $1, $2, $3)
		ON CONFLICT (task_queue, namespace_id)
			DO UPDATE SET key_max_running = excluded.key_max_running`, s.namespace, n, held)
}

func worker() store.Worker {
	return store.Worker{
		ID: uuid.New(), Queues: []string{"queue"}, Types: []string{"type"}, Hostname: "host", PID: 7, Build: "v1",
		Labels:        json.RawMessage(`{"zone": "a"}`),
		MaxConcurrent: 10, LeaseTimeout: time.Minute, StaleAfter: 30 * time.Second,
	}
}

func register(t *testing.T, s *both) store.Worker {
	t.Helper()
	w := worker()
	if err := s.Workers.Register(t.Context(), s.pool, w); err != nil {
		t.Fatal(err)
	}
	return w
}

// silence moves a worker's last heartbeat that far into the past.
func silence(t *testing.T, s *both, id uuid.UUID, d time.Duration) {
	t.Helper()
	exec(t, s.pool, `UPDATE kagzi.workers SET heartbeat_at = now() - $2::interval WHERE worker_id = $1`, id, d)
}

func events(t *testing.T, s *both, id uuid.UUID) string {
	t.Helper()
	return one[string](t, s.pool, `SELECT coalesce(string_agg(event, ' ' ORDER BY occurred_at), '')
		FROM kagzi.worker_events WHERE worker_id = $1`, id)
}

// extend extends the leases of the runs that are past half of their timeout, and returns the states of all after that.
func extend(t *testing.T, s *both, timeout time.Duration,
	runs ...*store.ClaimedRun,
) (states []store.HeldRunState, terms map[store.HeldRun]store.Term) {
	t.Helper()
	var asked []store.HeldRun
	for _, r := range runs {
		asked = append(asked, held(r))
	}
	alone := func(h store.HeldRun, err error) { t.Errorf("%v: %v", h, err) }
	terms, err := s.Leases.Extend(t.Context(), s.pool, asked, timeout, alone)
	if err == nil {
		states, err = s.Leases.HeldStates(t.Context(), s.pool, asked, alone)
	}
	if err != nil {
		t.Fatal(err)
	}
	return states, terms
}

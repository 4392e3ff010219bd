//go:build unix

package crash_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/campaign"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/localpg"
	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/internal/testhook"
)

var flowing = kagzi.Define[int, string]("flowing", kagzi.RetryPolicy{Backoff: 10 * time.Millisecond})

// flowing has an effect, and on the way sleeps, or fails, or does neither. It writes down when its step is executed.
func (l workload) flowing(ctx kagzi.Context, n int) (string, error) {
	lease := ctx.(testhook.Branch).Lease()
	err := kagzi.Do(ctx, "work", func(ctx context.Context) error {
		run, begun := kagzi.CurrentStep(ctx).Run, time.Now()
		l.reach("during step")
		select {
		case <-time.After(time.Duration(n%5) * time.Millisecond):
		case <-ctx.Done():
		}
		l.led.write("EXECUTED", run, lease, begun.UnixMicro())
		return context.Cause(ctx)
	})
	if err == nil && n%3 == 1 {
		err = kagzi.Sleep(ctx, "nap", 20*time.Millisecond)
	}
	if err == nil && n%3 == 2 && ctx.Attempt() == 1 {
		err = errors.New("not yet")
	}
	if err != nil {
		return "", err
	}
	return kagzi.StepTx(ctx, "tx", func(ctx context.Context, tx pgx.Tx) (string, error) {
		_, err := tx.Exec(ctx, insertEffect, kagzi.CurrentStep(ctx).Run, "tx")
		return strconv.Itoa(n), err
	})
}

// The audit also has when the transaction began, and the limits. The pauses in the transactions of claims make room for
// races.
const auditFlow = `
	ALTER TABLE kagzi_audit.changes ADD COLUMN begun timestamptz NOT NULL DEFAULT now();
	CREATE TABLE kagzi_audit.limits (change_id bigint GENERATED ALWAYS AS IDENTITY,
		txid xid8 NOT NULL DEFAULT pg_current_xact_id(), task_queue text, run_key text, most int);
	CREATE FUNCTION kagzi_audit.limit_of_queue() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO kagzi_audit.limits (task_queue, run_key, most) VALUES (NEW.task_queue, '',
			coalesce(NEW.max_running, 1000000)), (NEW.task_queue, '*', coalesce(NEW.key_max_running, 1000000));
		RETURN NULL;
	END $$;
	CREATE TRIGGER audit AFTER INSERT OR UPDATE OF max_running, key_max_running ON kagzi.queues
		FOR EACH ROW EXECUTE FUNCTION kagzi_audit.limit_of_queue();
	CREATE FUNCTION kagzi_audit.pause() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF random() < 0.5 THEN PERFORM pg_sleep(random() * 0.01); END IF;
		RETURN NULL;
	END $$;
	CREATE TRIGGER pause AFTER INSERT OR UPDATE ON kagzi.run_keys
		FOR EACH STATEMENT EXECUTE FUNCTION kagzi_audit.pause();
	CREATE TRIGGER pause AFTER UPDATE OF slot ON kagzi.workflow_runs
		FOR EACH STATEMENT EXECUTE FUNCTION kagzi_audit.pause();`

const auditedChanges = `
	SELECT c.begun, pg_xact_commit_timestamp(c.txid::xid), c.change_id, c.run_id::text, new->>'task_queue',
		coalesce(new->>'key_scope', ''), coalesce(new->>'run_key', ''),
		c.new_status, coalesce(c.new_lease::text, ''), (new->>'priority')::int, coalesce((new->>'slot')::int, 0),
			coalesce((new->>'available_at')::timestamptz, '0001-01-01 00:00:00Z')
	FROM kagzi_audit.changes c
	WHERE c.relation = 'workflow_runs' AND c.operation <> 'DELETE'
	ORDER BY c.change_id`

const auditedLimits = `SELECT pg_xact_commit_timestamp(txid::xid), task_queue, run_key, most FROM kagzi_audit.limits
	ORDER BY 1, change_id`

// The queues of the storm. All but "plain" have runs with keys; in "held" and in groups the runs of a key are
// sequences. Claims from "keys" wait for each other, because it has a limit, those from "open" do not.
var stormQueues = map[string]int{"held": 1, "keys": 1, "open": 1, "plain": 1, "fast": 1}

// every is the time between two starts of the queue "fast".
const every = 10 * time.Millisecond

// A flowStorm is a database, worker processes and runs, and the trouble that they have.
type flowStorm struct {
	t      *testing.T
	server *localpg.Cluster
	pool   *pgxpool.Pool
	proxy  *pgproxy.Proxy
	c      *kagzi.Client
	random *rand.Rand
	file   string
	spec   workerSpec
	alive  []*process
	runs   int
}

// TestFlowUnderTrouble has worker processes that share queues with limits, while they are killed, stopped and cut off,
// answers are lost, runs cancelled, limits changed and the server crashes. No limit is exceeded, sequences and rates
// are kept, and all runs end. KAGZI_STORM=100 sets the number of troubles.
func TestFlowUnderTrouble(t *testing.T) {
	t.Parallel()
	kit.WaitTurn(t)
	troubles := campaign.Size(3, 12)
	if n, err := strconv.Atoi(os.Getenv("KAGZI_STORM")); err == nil {
		troubles = n
	}
	s := newFlowStorm(t)
	for range 4 {
		s.start("", 0)
	}
	for i := range troubles {
		s.startRuns(40)
		left := s.left()
		await.True(t, "runs end", func() bool { return s.left() < max(left-35, 1) })
		s.trouble(i)
	}
	// the last ones die when they have ended runs, and no worker helps by chance
	for _, point := range []string{"finish", "after flush"} {
		p := s.start(point, 3)
		await.TrueWithin(t, 4*await.Patience, "the worker gets to the point", func() bool {
			select {
			case <-p.done:
				return true
			default:
				if s.left() < 20 {
					s.startRuns(20)
				}
				return false
			}
		})
		p.killed(t)
	}
	s.proxy.Disarm()
	await.TrueWithin(t, 4*await.Patience, "all runs end", func() bool { return s.left() == 0 })
	for _, p := range s.alive {
		p.stop(t)
	}
	s.check()
}

func newFlowStorm(t *testing.T) *flowStorm {
	server, err := localpg.Config{Settings: map[string]string{"track_commit_timestamp": "on"}}.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	pool := dbtest.OpenPool(t, server.DSN(), dbtest.Conns(5))
	if err := kagzi.Migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	dbtest.Audit(t, pool)
	dbtest.Exec(t, pool, auditFlow)
	dbtest.Exec(t, pool, createEffects)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	s := &flowStorm{
		t: t, server: server, pool: pool, proxy: pgproxy.Start(t, server.DSN()), c: kit.NewClient(t, pool),
		random: rand.New(rand.NewPCG(1, seed)), file: filepath.Join(t.TempDir(), "ledger"),
	}
	cfg := kit.Quick
	cfg.Queues, cfg.StaleAfter = stormQueues, 10*time.Second // a dead worker is missed by its connection
	s.spec = workerSpec{DSN: s.proxy.DSN(), Ledger: s.file, Config: cfg}
	s.set(admin.QueueLimits{Queue: "held", EachKey: admin.KeyLimits{MaxRunning: 1}, Hold: true})
	s.set(admin.QueueLimits{Queue: "open", EachKey: admin.KeyLimits{MaxRunning: 1}})
	s.set(admin.QueueLimits{Queue: "plain", MaxRunning: 2})
	s.set(admin.QueueLimits{Queue: "fast", Rate: admin.Rate{Starts: 1, Per: every}})
	s.setKeys()
	// A coordinator would look at all keys a minute after the change of limits, also at those that no worker handed on.
	dbtest.Exec(t, pool, `UPDATE kagzi.queues SET settled = true WHERE task_queue <> 'keys'`)
	return s
}

func (s *flowStorm) set(l admin.QueueLimits) {
	await.True(s.t, "the limits are set", func() bool { return admin.New(s.c).Queues.Set(s.t.Context(), l) == nil })
}

// setKeys changes the limits of the queue "keys".
func (s *flowStorm) setKeys() {
	s.set(admin.QueueLimits{
		Queue: "keys", MaxRunning: 2 + s.random.IntN(4),
		EachKey: admin.KeyLimits{MaxRunning: 1 + s.random.IntN(3)},
	})
}

// start starts a process, which kills itself the nth time it gets to the point, if that is not empty.
func (s *flowStorm) start(point string, nth int) *process {
	spec := s.spec
	if point != "" {
		spec.Point, spec.Nth, spec.Signal = point, nth, syscall.SIGKILL
		return startProcess(s.t, spec)
	}
	p := startProcess(s.t, spec)
	s.alive = append(s.alive, p)
	return p
}

func (s *flowStorm) left() (n int) {
	if err := s.pool.QueryRow(s.t.Context(), `SELECT count(*) FROM kagzi.workflow_runs WHERE finished_at IS NULL`).
		Scan(&n); err != nil {
		return 1 << 30 // the server starts
	}
	return n
}

// startRuns starts n runs, some in a transaction that stays open for a while.
func (s *flowStorm) startRuns(n int) {
	calls := make([]kagzi.Call, n)
	for i := range calls {
		s.runs++
		key := strconv.Itoa(s.random.IntN(4))
		options := []kagzi.StartOption{kagzi.Priority(1 + s.random.IntN(4))}
		switch s.random.IntN(11) {
		case 0, 1:
			options = append(options, kagzi.Queue("held"), kagzi.Key(key))
		case 2, 3:
			options = append(options, kagzi.Queue("keys"), kagzi.Key(key))
		case 4:
			options = append(options, kagzi.Queue("plain"))
		case 5:
			options = append(options, kagzi.Queue("fast"), kagzi.Key(key))
		case 6, 7, 8, 9:
			options = append(options, kagzi.Queue("open"), kagzi.Key(key))
		default:
			options = append(options, kagzi.Queue([]string{"held", "keys"}[s.random.IntN(2)]),
				kagzi.Group("g"+strconv.Itoa(s.random.IntN(2))))
		}
		calls[i] = flowing.With(s.runs, options...)
	}
	await.True(s.t, "the runs are started", func() bool {
		_, err := s.c.StartMany(s.t.Context(), calls[:n/2])
		return err == nil
	})
	await.True(s.t, "the runs are started in a transaction", func() bool {
		return pgx.BeginFunc(s.t.Context(), s.pool, func(tx pgx.Tx) error {
			_, err := s.c.StartMany(s.t.Context(), calls[n/2:], kagzi.InTx(tx))
			if err == nil {
				_, err = tx.Exec(s.t.Context(), `SELECT pg_sleep($1)`, s.random.Float64()/10)
			}
			return err
		}) == nil
	})
}

// trouble makes the i-th trouble.
func (s *flowStorm) trouble(i int) {
	p := s.alive[s.random.IntN(len(s.alive))]
	switch i % 12 {
	case 0, 6: // a worker dies
		_ = p.cmd.Process.Kill()
		p.killed(s.t)
		s.forget(p)
	case 1:
		s.try(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()
			AND pid <> pg_backend_pid() AND random() < 0.5`)
	case 2, 8:
		s.proxy.DropAck(pgproxy.Contains("sum(r.turn) OVER"))
		s.proxy.DropAck(pgproxy.Contains("output = u.output"))
	case 3, 9:
		s.proxy.DropRequest(pgproxy.Contains("sum(r.turn) OVER"))
		s.proxy.DropRequest(pgproxy.Contains("excluded.available_at < x.available_at"))
	case 4, 10: // runs are cancelled and terminated, whatever they do
		rows, _ := s.pool.Query(s.t.Context(), `SELECT run_id::text FROM kagzi.workflow_runs WHERE finished_at IS NULL
			ORDER BY random() LIMIT 6`)
		ids, _ := pgx.CollectRows(rows, pgx.RowTo[string])
		for n, id := range ids {
			if n%2 == 0 {
				_ = s.c.Cancel(s.t.Context(), kagzi.RunID(id)) // it may have ended
			} else {
				_ = admin.New(s.c).Runs.Terminate(s.t.Context(), kagzi.RunID(id))
			}
		}
	case 5, 11:
		s.setKeys()
	case 7: // a worker stops for longer than the others wait for it, or the server crashes
		_ = p.cmd.Process.Signal(syscall.SIGSTOP)
		await.True(s.t, "the worker is declared dead", func() bool {
			var n int
			err := s.pool.QueryRow(s.t.Context(), `SELECT count(*) FROM kagzi.workers WHERE pid = $1
				AND status = 'OFFLINE'`, p.cmd.Process.Pid).Scan(&n)
			return err == nil && n > 0
		})
		_ = p.cmd.Process.Signal(syscall.SIGCONT)
		s.startRuns(40)
		await.True(s.t, "runs end before the server crashes", func() bool { return s.left() < 30 })
		if err := s.server.Restart(s.t.Context(), localpg.Immediate); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *flowStorm) forget(p *process) {
	for i := range s.alive {
		if s.alive[i] == p {
			s.alive = append(s.alive[:i:i], s.alive[i+1:]...)
			break
		}
	}
	s.start("", 0)
}

func (s *flowStorm) try(sql string) { _, _ = s.pool.Exec(s.t.Context(), sql) }

func (s *flowStorm) check() {
	dbtest.CheckInvariants(s.t, s.pool)
	var changes []slotChange
	var limits []limitChange
	var c slotChange
	rows, _ := s.pool.Query(s.t.Context(), auditedChanges)
	_, err := pgx.ForEachRow(rows, []any{
		&c.Begun, &c.At, &c.Seq, &c.Run, &c.Queue, &c.Scope, &c.Key, &c.Status,
		&c.Lease, &c.Priority, &c.Slot, &c.AvailableAt,
	}, func() error {
		changes = append(changes, c)
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	rows, _ = s.pool.Query(s.t.Context(), auditedLimits)
	if limits, err = pgx.CollectRows(rows, pgx.RowToStructByPos[limitChange]); err != nil {
		s.t.Fatal(err)
	}
	lines, err := readLedger(s.file)
	if err != nil {
		s.t.Fatal(err)
	}
	var executions []executed
	for _, l := range lines {
		if l[0] == "EXECUTED" {
			begin, _ := strconv.ParseInt(l[3], 10, 64) // written by this test
			executions = append(executions, executed{l[1], l[2], time.UnixMicro(begin)})
		}
	}
	for what, found := range map[string][]string{
		"over a limit": tooMany(changes, limits),
		"out of order": outOfOrder(changes, func(c slotChange) bool {
			return c.Key != "" && (c.Scope == "" || c.Queue == "held")
		}),
		"too fast": tooFast(changes, "fast", every),
		"no slot":  withoutSlot(changes, executions),
	} {
		for _, f := range found[:min(5, len(found))] {
			s.t.Errorf("%s (%d in all): %s", what, len(found), f)
		}
	}
	if got := dbtest.QueryOne[string](s.t, s.pool,
		`SELECT count(*) FILTER (WHERE r.status = 'COMPLETED') || ' of ' || count(*) || ', ' ||
		count(*) FILTER (WHERE e.n > 1 OR r.status = 'COMPLETED' AND e.n IS NULL) FROM kagzi.workflow_runs r
			LEFT JOIN (SELECT run_id, count(*) AS n FROM effects GROUP BY 1) e
			ON e.run_id = r.run_id::text`); got[len(got)-3:] != ", 0" && got[len(got)-2:] != " 0" {
		s.t.Errorf("runs completed and with wrong effects: %s", got)
	}
	s.t.Logf("%d runs, %d changes, %d executions", s.runs, len(changes), len(executions))
}

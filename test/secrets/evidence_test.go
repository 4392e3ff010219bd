package secrets_test

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/testlog"
	"github.com/kagzi/kagzi/notify"
)

const (
	word     = "pAyLoAdMaRk"         // in each payload that is a text
	number   = 7359182640            // in each payload that is a number
	password = "pAsSwOrD/@MaRk'\"%5" // of the user of each pool that has one of its own
)

// marks are texts that must not be found, in each form that an error or a stack could have it in. Postgres writes bytea
// in hexadecimal.
var marks = []string{
	word, hex.EncodeToString([]byte(word)), strconv.Itoa(number), strconv.FormatInt(number, 16),
	"pAsSwOrD", "MaRk'",
}

// An evidence collects what Kagzi says, and checks it when the test ends.
type evidence struct {
	t    *testing.T
	ctx  context.Context
	pool *pgxpool.Pool // the owner's
	log  testlog.Buffer

	mu    sync.Mutex
	texts []string
}

// collect returns the evidence of a database. All its tables are read when the test ends. If sealed is set, no column
// may have a mark; otherwise those of payloads must have one.
func collect(t *testing.T, db *dbtest.DB, sealed bool) *evidence {
	t.Helper()
	e := &evidence{t: t, ctx: kit.Context(t), pool: dbtest.Owner(t, db.Pool)}
	t.Cleanup(func() {
		found := e.tables(sealed)
		if !sealed && found == 0 {
			t.Error("INVALID: no column has a payload")
		}
		e.check()
	})
	return e
}

// client returns a client that logs everything to the evidence.
func (e *evidence) client(pool *pgxpool.Pool, cfg kagzi.ClientConfig) *kagzi.Client {
	e.t.Helper()
	cfg.Logger = slog.New(slog.NewTextHandler(&e.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	return kit.NewClientWith(e.t, pool, cfg)
}

// say adds texts to the evidence.
func (e *evidence) say(what string, texts ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, text := range texts {
		e.texts = append(e.texts, fmt.Sprintf("%s: %+v", what, text))
	}
}

// fails adds an error, which there must be.
func (e *evidence) fails(what string, err error) {
	e.t.Helper()
	if err == nil {
		e.t.Errorf("%s has not failed", what)
		return
	}
	e.say(what, err)
}

// says fails the test unless the evidence has a text with all of the parts.
func (e *evidence) says(parts ...string) {
	e.t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, text := range e.texts {
		if has(text, parts) {
			return
		}
	}
	e.t.Errorf("INVALID: nothing says %q:\n%s", parts, strings.Join(e.texts, "\n"))
}

func has(text string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

// check looks for marks in logs and errors.
func (e *evidence) check() {
	e.t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	for line := range strings.Lines(e.log.String()) {
		e.search("the log", line)
	}
	for _, text := range e.texts {
		e.search("", text)
	}
}

func (e *evidence) search(where, text string) {
	e.t.Helper()
	for _, mark := range marks {
		if strings.Contains(text, mark) {
			e.t.Errorf("%s has %q: %s", where, mark, text)
		}
	}
}

const columns = `SELECT format('%I.%I', c.table_schema, c.table_name), quote_ident(c.column_name), c.data_type
	FROM information_schema.columns c JOIN information_schema.tables t USING (table_schema, table_name)
	WHERE c.table_schema = 'kagzi' AND t.table_type = 'BASE TABLE' ORDER BY 1, 2`

// payloads are the columns that hold payloads and are not bytea: the input of a compensation is in its call, in base64.
var payloads = map[string]bool{"kagzi.step_runs.call": true}

// tables looks for marks in every column of Kagzi's tables. It returns how many columns of payloads have one.
func (e *evidence) tables(sealed bool) (found int) {
	e.t.Helper()
	ctx := context.WithoutCancel(e.ctx)
	rows, err := e.pool.Query(ctx, columns)
	if err != nil {
		e.t.Fatal(err)
	}
	defer rows.Close()
	var all [][3]string
	for rows.Next() {
		var c [3]string
		if err := rows.Scan(&c[0], &c[1], &c[2]); err != nil {
			e.t.Fatal(err)
		}
		all = append(all, c)
	}
	if rows.Err() != nil || len(all) < 100 {
		e.t.Fatalf("%d columns, %v", len(all), rows.Err())
	}
	for _, c := range all {
		table, column, kind := c[0], c[1], c[2]
		value := column + `::text`
		if kind == "bytea" {
			value = `encode(` + column + `, 'escape')`
		}
		mayHave := !sealed && (kind == "bytea" || payloads[table+"."+column])
		for _, mark := range append(base64Of(word), marks...) {
			var example *string
			if err := e.pool.QueryRow(ctx, `SELECT min(`+value+`) FROM `+table+` WHERE position($1 IN `+value+`) > 0`,
				mark).Scan(&example); err != nil {
				e.t.Errorf("%s.%s: %v", table, column, err)
			}
			switch {
			case example == nil:
			case mayHave && !strings.Contains(mark, "pAsSwOrD"):
				found++
			default:
				e.t.Errorf("%s.%s has %q: %s", table, column, mark, *example)
			}
		}
	}
	return found
}

// base64Of returns what base64 makes of a text, wherever the text begins in a group of three bytes.
func base64Of(text string) (all []string) {
	for i := range 3 {
		encoded := base64.StdEncoding.EncodeToString([]byte(strings.Repeat(" ", i) + text))
		all = append(all, encoded[4:len(encoded)-4])
	}
	return all
}

// hear adds the notifications that are sent while the test runs.
func (e *evidence) hear(dsn string) {
	e.t.Helper()
	conn := dbtest.Connect(e.t, dsn)
	for _, channel := range []string{notify.WorkChannel, notify.RunChannel, notify.LeadChannel} {
		if _, err := conn.Exec(e.ctx, `LISTEN `+channel); err != nil {
			e.t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(e.ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			n, err := conn.WaitForNotification(ctx)
			if err != nil {
				return
			}
			e.say("notification", n.Channel, n.Payload)
		}
	}()
	e.t.Cleanup(func() {
		cancel()
		<-ended
		e.says("notification: ")
	})
}

// look adds what c tells people about the database, without what it shows as payloads.
func (e *evidence) look(c *kagzi.Client) {
	e.t.Helper()
	runs, err := c.List(e.ctx, kagzi.RunFilter{Limit: 1000})
	if err != nil {
		e.t.Fatal(err)
	}
	for _, run := range runs {
		log, err := admin.New(c).Runs.Log(e.ctx, run.ID)
		e.add("the log of a run", log, err)
		info, err := c.Get(e.ctx, run.ID)
		info.Input, info.Output = nil, nil
		e.add("a run", info, err)
		steps, err := c.Steps(e.ctx, run.ID, kagzi.StepFilter{NoPayloads: true})
		e.add("steps", steps, err)
		messages, err := admin.New(c).Messages.List(e.ctx, run.ID, admin.MessageFilter{})
		for i := range messages {
			messages[i].Payload = nil
		}
		e.add("messages", messages, err)
	}
	audit, err := admin.New(c).Audit(e.ctx, admin.AuditFilter{Limit: 1000})
	e.add("the audit log", audit, err)
	health, err := admin.New(c).Health(e.ctx)
	e.add("health", health, err)
	consumers, err := admin.New(c).Consumers.List(e.ctx)
	for i := range consumers {
		consumers[i].State = nil
	}
	e.add("consumers", consumers, err)
	workers, _, err := admin.New(c).Workers.List(e.ctx, admin.WorkerFilter{})
	e.add("workers", workers, err)
	for _, w := range workers {
		log, err := admin.New(c).Workers.Log(e.ctx, w.ID)
		e.add("the log of a worker", log, err)
	}
}

// add adds a value as JSON.
func (e *evidence) add(what string, v any, err error) {
	e.t.Helper()
	if err != nil {
		e.t.Errorf("%s: %v", what, err)
	}
	text, err := json.Marshal(v)
	if err != nil {
		e.t.Errorf("%s: %v", what, err)
	}
	e.say(what, string(text))
}

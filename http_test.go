package kagzi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/migrations"
)

func TestHTTPStatus(t *testing.T) {
	t.Parallel()
	wrapped := func(err error) error { return fmt.Errorf("handle: %w", err) }
	failed := func(k kind.Kind) error {
		return &kagzi.RunError{Status: kagzi.StatusFailed, Kind: k, Message: "x"}
	}
	pg := func(code string) error { return &pgconn.PgError{Code: code} }
	for _, tt := range []struct {
		name string
		err  error
		want int
	}{
		{"nil", nil, 200},
		{"not found", wrapped(kagzi.ErrNotFound), 404},
		{"conflict", wrapped(kagzi.ErrIDConflict), 409},
		{"taken", kagzi.ErrIDTaken, 409},
		{"full", wrapped(kagzi.ErrKeyFull), 429},
		{"inbox full", wrapped(kagzi.ErrInboxFull), 429},
		{"finished", kagzi.ErrRunFinished, 409},
		{"active", kagzi.ErrRunActive, 409},
		{"compensated", core.ErrCompensated, 409},
		{"not in doubt", core.ErrNoDoubt, 409},
		{"not migrated", wrapped(migrations.ErrMissing), 503},
		{"migrated by a newer program", wrapped(migrations.ErrNewer), 503},
		{"large", wrapped(kagzi.ErrPayloadTooLarge), 413},
		{"failed of not found", failed(kind.NotFound), 404},
		{"failed of unauthorized", failed(kind.Unauthorized), 500},
		{"failed of a bad request", failed(kind.BadRequest), 500},
		{"failed of validation", failed(kind.Validation), 422},
		{"failed of a limit", failed(kind.RateLimited), 429},
		{"failed of a timeout", failed(kind.Timeout), 504},
		{"over its Timeout", wrapped(failed(kind.Deadline)), 504},
		{"failed of the network", failed(kind.Network), 502},
		{"failed of unavailability", failed(kind.Unavailable), 503},
		{"failed of a database", failed(kind.Database), 503},
		{"failed of a panic", failed(kind.Panic), 500},
		{"failed of bad input", failed(kind.BadInput), 500},
		{"crash loop", failed(kind.CrashLoop), 500},
		{"failed of a kind of the user's", failed("card_declined"), 500},
		{"cancelled run", &kagzi.RunError{Status: kagzi.StatusCancelled, Kind: kind.Cancelled}, 409},
		{"cancelled request", wrapped(context.Canceled), 503},
		{"late", wrapped(context.DeadlineExceeded), 504},
		{"away", pg("57P01"), 503},
		{"statement timeout", pg("57014"), 503},
		{"connections", pg("53300"), 503},
		{"disk full", pg("53100"), 503},
		{"lock", pg("55P03"), 503},
		{"deadlock", pg("40P01"), 503},
		{"rights", pg("42501"), 500},
		{"no table", pg("42P01"), 500},
		{"violated constraint", pg("23505"), 422},
		{"broken connection", fmt.Errorf("x: %w", io.ErrUnexpectedEOF), 503},
		{"other", errors.New("x"), 500},
		{"lease", kagzi.ErrLeaseLost, 500},
		{"shutdown", kagzi.ErrShutdown, 500},
	} {
		if got := kagzi.HTTPStatus(tt.err); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

// A caller's mistake is a bad request, both as an HTTP status and as a kind.
func TestRefusalsAreBadRequests(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t)
	c, err := kagzi.NewClient(pool, kagzi.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	wf := kagzi.Define[string, string]("wf")
	start := func(opts ...kagzi.StartOption) error {
		_, err := kagzi.Start(ctx, c, wf, "x", opts...)
		return err
	}
	_, listing := c.List(ctx, kagzi.RunFilter{Limit: -1})
	_, status := c.List(ctx, kagzi.RunFilter{Status: []kagzi.Status{"DONE"}})
	_, getting := c.Get(ctx, kagzi.ID(""))
	_, bulk := admin.New(c).Runs.CancelAll(ctx, kagzi.RunFilter{})
	_, _, workers := admin.New(c).Workers.List(ctx, admin.WorkerFilter{Status: []string{"GONE"}})
	for name, err := range map[string]error{
		"empty ID": start(kagzi.ID("")), "Timeout": start(kagzi.Timeout(30)), "Priority": start(kagzi.Priority(9)),
		"nil option": start(nil),
		"nil InTx":   start(kagzi.InTx(pgx.Tx(nil))), "Limit": listing, "Status": status, "empty reference": getting,
		"empty filter": bulk, "worker's status": workers,
		"schedule":    c.Schedule(ctx, kagzi.Schedule{Name: "s", Cron: "61 * * * *", Run: wf.With("x")}),
		"no schedule": c.Schedule(ctx, kagzi.Schedule{}),
		"message":     c.Signal(ctx, kagzi.ID("x"), kagzi.Message{}),
	} {
		if kagzi.KindOf(err) != kind.BadRequest || kagzi.HTTPStatus(err) != http.StatusBadRequest {
			t.Errorf("%s: %v: %s, %d", name, err, kagzi.KindOf(err), kagzi.HTTPStatus(err))
		}
	}
	if _, err := kagzi.Start(ctx, nil, wf, "x"); kagzi.HTTPStatus(err) != http.StatusInternalServerError {
		t.Errorf("a nil client: %v: %d", err, kagzi.HTTPStatus(err))
	}
	if _, err := c.Get(ctx, kagzi.ID("nobody")); kagzi.HTTPStatus(err) != http.StatusNotFound {
		t.Errorf("%v: %d", err, kagzi.HTTPStatus(err))
	}
	pool.Close()
	if err := start(kagzi.Delay(time.Hour)); kagzi.HTTPStatus(err) != http.StatusServiceUnavailable {
		t.Errorf("a closed pool: %v: %d", err, kagzi.HTTPStatus(err))
	}
}

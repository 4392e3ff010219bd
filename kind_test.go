package kagzi_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/kind"
)

func ExampleKindOf() {
	const Declined kind.Kind = "card_declined"
	err := fmt.Errorf("charge order 42: %w", Declined)

	fmt.Println(kagzi.KindOf(err))
	fmt.Println(errors.Is(err, Declined))
	fmt.Println(kagzi.KindOf(context.DeadlineExceeded))
	fmt.Println(kagzi.KindOf(errors.New("something else")))
	// Output:
	// card_declined
	// true
	// timeout
	// unknown
}

type (
	statusError     int // as in many HTTP clients
	httpStatusError int // as in smithy
	asKindError     struct{}
	timeoutError    struct{}
	rudeError       struct{ text string }
)

func (s statusError) Error() string           { return http.StatusText(int(s)) }
func (s statusError) StatusCode() int         { return int(s) }
func (s httpStatusError) Error() string       { return http.StatusText(int(s)) }
func (s httpStatusError) HTTPStatusCode() int { return int(s) }
func (asKindError) Error() string             { return "declined" }
func (timeoutError) Error() string            { return "too slow" }
func (timeoutError) Timeout() bool            { return true }
func (r *rudeError) Error() string            { return r.text }      // panics on a nil pointer
func (r *rudeError) StatusCode() int          { return len(r.text) } // too

func (asKindError) As(target any) bool {
	k, ok := target.(*kind.Kind)
	if ok {
		*k = "declared_by_as"
	}
	return ok
}

func TestKindOf(t *testing.T) {
	t.Parallel()
	pg := func(code string) error { return fmt.Errorf("insert: %w", &pgconn.PgError{Code: code, Message: "m"}) }
	op := func(err error) error {
		return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", err)}
	}
	_, noFile := os.Open(filepath.Join(t.TempDir(), "missing"))
	_, badURL := url.Parse(strings.Join([]string{"http:", "", "[::1"}, "/"))
	step := &kagzi.StepError{Step: "s", Kind: kind.RateLimited}

	for _, test := range []struct {
		name string
		err  error
		want kind.Kind
	}{
		{"Nil", nil, ""},
		{"Other", errors.New("x"), kind.Unknown},
		{"EOFMayBeNormal", io.EOF, kind.Unknown},

		{"Kind", kind.Validation, kind.Validation},
		{"KindWrapped", fmt.Errorf("a: %w", fmt.Errorf("b: %w", kind.Validation)), kind.Validation},
		{"KindOfTheUser", fmt.Errorf("a: %w", kind.Kind("declined")), "declined"},
		{"KindBeatsClassification", fmt.Errorf("%w: %w", context.DeadlineExceeded, kind.Validation), kind.Validation},
		{"OuterKindWins", fmt.Errorf("%w: %w", kind.Deadline, step), kind.Deadline},
		{"KindJoined", errors.Join(errors.New("x"), kind.Panic), kind.Panic},
		{"KindByAs", fmt.Errorf("a: %w", asKindError{}), "declared_by_as"},
		{"EmptyKindIsNone", fmt.Errorf("%w: %w", kind.Kind(""), context.DeadlineExceeded), kind.Timeout},
		{"KindThatCannotBeStored", kind.Kind("\r"), kind.Unknown},
		{"StepError", fmt.Errorf("a: %w", step), kind.RateLimited},
		{"StepErrorWithoutKind", &kagzi.StepError{}, kind.Unknown},
		{"RunError", &kagzi.RunError{Kind: kind.CrashLoop}, kind.CrashLoop},
		{"BranchError", &kagzi.BranchError{Name: "b", Err: step}, kind.RateLimited},
		{
			"FirstOfBranchErrors",
			kagzi.BranchErrors{{Err: errors.New("x")}, {Err: step}, {Err: kind.Panic}},
			kind.RateLimited,
		},
		{"PermanentKeepsKind", kagzi.Permanent(context.DeadlineExceeded), kind.Timeout},
		{"RetryAfterKeepsKind", kagzi.RetryAfter(kind.Validation, time.Second), kind.Validation},

		{"DeadlineExceeded", fmt.Errorf("a: %w", context.DeadlineExceeded), kind.Timeout},
		{"Canceled", fmt.Errorf("a: %w", context.Canceled), kind.Cancelled},
		{"RequestCancelled", &url.Error{Op: "Get", URL: "http://x", Err: context.Canceled}, kind.Cancelled},

		{"Refused", op(syscall.ECONNREFUSED), kind.Network},
		{"RefusedBare", fmt.Errorf("a: %w", syscall.ECONNREFUSED), kind.Network},
		{"Reset", os.NewSyscallError("read", syscall.ECONNRESET), kind.Network},
		{"BrokenPipe", &fs.PathError{Op: "write", Path: "|1", Err: syscall.EPIPE}, kind.Network},
		{"DialTimeout", op(syscall.ETIMEDOUT), kind.Timeout},
		{"DeadlineOfConnection", fmt.Errorf("read: %w", os.ErrDeadlineExceeded), kind.Timeout},
		{"TimeoutOfTheUser", fmt.Errorf("a: %w", timeoutError{}), kind.Timeout},
		{
			"TimeoutBehindAnotherNetError", &net.OpError{Op: "read", Err: fmt.Errorf("a: %w", timeoutError{})},
			kind.Timeout,
		},
		{"FirewallIsNotAPermission", op(syscall.EACCES), kind.Network},
		{"NoSocketIsNotAFile", op(syscall.ENOENT), kind.Network},
		{"DNS", &net.DNSError{Name: "nowhere.invalid", IsNotFound: true}, kind.Network},
		{"DNSTimeout", &net.DNSError{Name: "slow.invalid", IsTimeout: true}, kind.Timeout},
		{"UnexpectedEOF", fmt.Errorf("read body: %w", io.ErrUnexpectedEOF), kind.Network},
		{"ServerClosed", &url.Error{Op: "Get", URL: "http://x", Err: io.EOF}, kind.Network},
		{"BadURL", badURL, kind.BadRequest},
		{"Closed", fmt.Errorf("a: %w", net.ErrClosed), kind.Network},

		{"PgUnique", pg("23505"), kind.Validation},
		{"PgForeignKey", pg("23503"), kind.Validation},
		{"PgTooLong", pg("22001"), kind.Validation},
		{"PgCheckOption", pg("44000"), kind.Validation},
		{"PgPrivilege", pg("42501"), kind.Unauthorized},
		{"PgUndefinedTable", pg("42P01"), kind.BadRequest},
		{"PgSyntax", pg("42601"), kind.BadRequest},
		{"PgSerialization", pg("40001"), kind.Database},
		{"PgDeadlock", pg("40P01"), kind.Database},
		{"PgTooManyConnections", pg("53300"), kind.Database},
		{"PgLock", pg("55P03"), kind.Database},
		{"PgShutdown", pg("57P01"), kind.Database},
		{"PgStarting", pg("57P03"), kind.Database},
		{"PgStatementTimeout", pg("57014"), kind.Timeout},
		{"PgConnection", pg("08006"), kind.Database},
		{"PgReadOnly", pg("25006"), kind.Database},
		{"PgRaise", pg("P0001"), kind.Database},
		{"PgWithoutCode", pg(""), kind.Database},
		{"PgOddCode", pg("2"), kind.Database},
		{"PgNoRows", fmt.Errorf("a: %w", pgx.ErrNoRows), kind.NotFound},
		{"SQLBadConnection", fmt.Errorf("a: %w", driver.ErrBadConn), kind.Database},
		{"SQLNoRows", sql.ErrNoRows, kind.NotFound},

		{"NoFile", noFile, kind.NotFound},
		{"NoPermission", &fs.PathError{Op: "open", Path: "x", Err: syscall.EACCES}, kind.Unauthorized},

		{"NotFound", fmt.Errorf("signal: %w", kagzi.ErrNotFound), kind.NotFound},
		{"Compensated", core.ErrCompensated, kind.BadRequest},
		{"NotInDoubt", core.ErrNoDoubt, kind.BadRequest},
		{"RunFinished", kagzi.ErrRunFinished, kind.BadRequest},
		{"RunActiveMayEnd", kagzi.ErrRunActive, kind.Unknown},
		{"IDConflict", kagzi.ErrIDConflict, kind.BadRequest},
		{"IDTaken", kagzi.ErrIDTaken, kind.BadRequest},
		{"KeyFull", fmt.Errorf("start: %w", kagzi.ErrKeyFull), kind.RateLimited},
		{"PayloadTooLarge", kagzi.ErrPayloadTooLarge, kind.BadRequest},
		{"LeaseLost", kagzi.ErrLeaseLost, kind.Unknown},
		{"Shutdown", kagzi.ErrShutdown, kind.Unknown},

		{"NilPointerInInterface", (*rudeError)(nil), kind.Unknown},
		{"NilStepErrorInInterface", (*kagzi.StepError)(nil), kind.Unknown},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := kagzi.KindOf(test.err); got != test.want {
				t.Errorf("KindOf(%T) = %q; want %q", test.err, got, test.want)
			}
		})
	}
}

func TestKindOfHTTPStatus(t *testing.T) {
	t.Parallel()
	for code, want := range map[int]kind.Kind{
		0:   kind.Unknown,
		-1:  kind.Unknown,
		200: kind.Unknown,
		304: kind.Unknown,
		400: kind.BadRequest,
		401: kind.Unauthorized,
		402: kind.BadRequest,
		403: kind.Unauthorized,
		404: kind.NotFound,
		405: kind.BadRequest,
		408: kind.Timeout,
		409: kind.Unknown,
		410: kind.NotFound,
		413: kind.BadRequest,
		422: kind.Validation,
		423: kind.Unknown,
		425: kind.Unknown,
		429: kind.RateLimited,
		500: kind.Unknown,
		502: kind.Unavailable,
		503: kind.Unavailable,
		504: kind.Unavailable,
		529: kind.Unavailable,
		600: kind.Unknown,
	} {
		for _, err := range []error{statusError(code), fmt.Errorf("call: %w", httpStatusError(code))} {
			if got := kagzi.KindOf(err); got != want {
				t.Errorf("%T %d: got %q; want %q", err, code, got, want)
			}
		}
	}
	if got := kagzi.KindOf(fmt.Errorf("%w: %w", statusError(0), io.ErrUnexpectedEOF)); got != kind.Network {
		t.Errorf("a request without response: got %q", got)
	}
}

func TestKindOfRealFailures(t *testing.T) {
	t.Parallel()
	check := func(err error, want kind.Kind) {
		t.Helper()
		if got := kagzi.KindOf(err); got != want {
			t.Errorf("got %q; want %q for %v", got, want, err)
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	listener.Close()

	_, err = net.Dial("tcp", addr)
	check(err, kind.Network)
	_, err = http.Get("http://" + addr)
	check(err, kind.Network)
	_, err = pgx.Connect(t.Context(), "postgres://u@"+addr+"/d?connect_timeout=5&sslmode=disable")
	check(err, kind.Database)

	released := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/abort":
			panic(http.ErrAbortHandler)
		case "/slow":
			await.Opened(t, released)
		case "/short":
			w.Header().Set("Content-Length", "10")
			w.Write([]byte("x"))
		}
	}))
	defer server.Close()
	defer close(released)

	_, err = server.Client().Get(server.URL + "/abort")
	check(err, kind.Network)
	slow := *server.Client()
	slow.Timeout = 10 * time.Millisecond
	_, err = slow.Get(server.URL + "/slow")
	check(err, kind.Timeout)
	res, err := server.Client().Get(server.URL + "/short")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	_, err = io.ReadAll(res.Body)
	check(err, kind.Network)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	check(err, kind.Cancelled)
}

func TestKindOfCanBeStored(t *testing.T) {
	t.Parallel()
	for _, k := range []kind.Kind{"a\x00b", "\xff\xfe", kind.Kind(strings.Repeat("ä", 10_000))} {
		got := string(kagzi.KindOf(k))
		if got == "" || len(got) > 255 || !utf8.ValidString(got) || strings.Contains(got, "\x00") {
			t.Errorf("KindOf(%.20q) = %q", k, got)
		}
	}
}

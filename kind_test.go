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
)

func ExampleKindOf() {
	const Declined kagzi.Kind = "card_declined"
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
	k, ok := target.(*kagzi.Kind)
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
	step := &kagzi.StepError{Step: "s", Kind: kagzi.KindRateLimited}

	for _, test := range []struct {
		name string
		err  error
		want kagzi.Kind
	}{
		{"Nil", nil, ""},
		{"Other", errors.New("x"), kagzi.KindUnknown},
		{"EOFMayBeNormal", io.EOF, kagzi.KindUnknown},

		{"Kind", kagzi.KindValidation, kagzi.KindValidation},
		{"KindWrapped", fmt.Errorf("a: %w", fmt.Errorf("b: %w", kagzi.KindValidation)), kagzi.KindValidation},
		{"KindOfTheUser", fmt.Errorf("a: %w", kagzi.Kind("declined")), "declined"},
		{"KindBeatsClassification", fmt.Errorf("%w: %w", context.DeadlineExceeded, kagzi.KindValidation), kagzi.KindValidation},
		{"OuterKindWins", fmt.Errorf("%w: %w", kagzi.KindDeadline, step), kagzi.KindDeadline},
		{"KindJoined", errors.Join(errors.New("x"), kagzi.KindPanic), kagzi.KindPanic},
		{"KindByAs", fmt.Errorf("a: %w", asKindError{}), "declared_by_as"},
		{"EmptyKindIsNone", fmt.Errorf("%w: %w", kagzi.Kind(""), context.DeadlineExceeded), kagzi.KindTimeout},
		{"KindThatCannotBeStored", kagzi.Kind("\r"), kagzi.KindUnknown},
		{"StepError", fmt.Errorf("a: %w", step), kagzi.KindRateLimited},
		{"StepErrorWithoutKind", &kagzi.StepError{}, kagzi.KindUnknown},
		{"RunError", &kagzi.RunError{Kind: kagzi.KindCrashLoop}, kagzi.KindCrashLoop},
		{"BranchError", &kagzi.BranchError{Name: "b", Err: step}, kagzi.KindRateLimited},
		{"FirstOfBranchErrors", kagzi.BranchErrors{{Err: errors.New("x")}, {Err: step}, {Err: kagzi.KindPanic}}, kagzi.KindRateLimited},
		{"PermanentKeepsKind", kagzi.Permanent(context.DeadlineExceeded), kagzi.KindTimeout},
		{"RetryAfterKeepsKind", kagzi.RetryAfter(kagzi.KindValidation, time.Second), kagzi.KindValidation},

		{"DeadlineExceeded", fmt.Errorf("a: %w", context.DeadlineExceeded), kagzi.KindTimeout},
		{"Canceled", fmt.Errorf("a: %w", context.Canceled), kagzi.KindCancelled},
		{"RequestCancelled", &url.Error{Op: "Get", URL: "http://x", Err: context.Canceled}, kagzi.KindCancelled},

		{"Refused", op(syscall.ECONNREFUSED), kagzi.KindNetwork},
		{"RefusedBare", fmt.Errorf("a: %w", syscall.ECONNREFUSED), kagzi.KindNetwork},
		{"Reset", os.NewSyscallError("read", syscall.ECONNRESET), kagzi.KindNetwork},
		{"BrokenPipe", &fs.PathError{Op: "write", Path: "|1", Err: syscall.EPIPE}, kagzi.KindNetwork},
		{"DialTimeout", op(syscall.ETIMEDOUT), kagzi.KindTimeout},
		{"DeadlineOfConnection", fmt.Errorf("read: %w", os.ErrDeadlineExceeded), kagzi.KindTimeout},
		{"TimeoutOfTheUser", fmt.Errorf("a: %w", timeoutError{}), kagzi.KindTimeout},
		{"TimeoutBehindAnotherNetError", &net.OpError{Op: "read", Err: fmt.Errorf("a: %w", timeoutError{})}, kagzi.KindTimeout},
		{"FirewallIsNotAPermission", op(syscall.EACCES), kagzi.KindNetwork},
		{"NoSocketIsNotAFile", op(syscall.ENOENT), kagzi.KindNetwork},
		{"DNS", &net.DNSError{Name: "nowhere.invalid", IsNotFound: true}, kagzi.KindNetwork},
		{"DNSTimeout", &net.DNSError{Name: "slow.invalid", IsTimeout: true}, kagzi.KindTimeout},
		{"UnexpectedEOF", fmt.Errorf("read body: %w", io.ErrUnexpectedEOF), kagzi.KindNetwork},
		{"ServerClosed", &url.Error{Op: "Get", URL: "http://x", Err: io.EOF}, kagzi.KindNetwork},
		{"BadURL", badURL, kagzi.KindBadRequest},
		{"Closed", fmt.Errorf("a: %w", net.ErrClosed), kagzi.KindNetwork},

		{"PgUnique", pg("23505"), kagzi.KindValidation},
		{"PgForeignKey", pg("23503"), kagzi.KindValidation},
		{"PgTooLong", pg("22001"), kagzi.KindValidation},
		{"PgCheckOption", pg("44000"), kagzi.KindValidation},
		{"PgPrivilege", pg("42501"), kagzi.KindUnauthorized},
		{"PgUndefinedTable", pg("42P01"), kagzi.KindBadRequest},
		{"PgSyntax", pg("42601"), kagzi.KindBadRequest},
		{"PgSerialization", pg("40001"), kagzi.KindDatabase},
		{"PgDeadlock", pg("40P01"), kagzi.KindDatabase},
		{"PgTooManyConnections", pg("53300"), kagzi.KindDatabase},
		{"PgLock", pg("55P03"), kagzi.KindDatabase},
		{"PgShutdown", pg("57P01"), kagzi.KindDatabase},
		{"PgStarting", pg("57P03"), kagzi.KindDatabase},
		{"PgStatementTimeout", pg("57014"), kagzi.KindTimeout},
		{"PgConnection", pg("08006"), kagzi.KindDatabase},
		{"PgReadOnly", pg("25006"), kagzi.KindDatabase},
		{"PgRaise", pg("P0001"), kagzi.KindDatabase},
		{"PgWithoutCode", pg(""), kagzi.KindDatabase},
		{"PgOddCode", pg("2"), kagzi.KindDatabase},
		{"PgNoRows", fmt.Errorf("a: %w", pgx.ErrNoRows), kagzi.KindNotFound},
		{"SQLBadConnection", fmt.Errorf("a: %w", driver.ErrBadConn), kagzi.KindDatabase},
		{"SQLNoRows", sql.ErrNoRows, kagzi.KindNotFound},

		{"NoFile", noFile, kagzi.KindNotFound},
		{"NoPermission", &fs.PathError{Op: "open", Path: "x", Err: syscall.EACCES}, kagzi.KindUnauthorized},

		{"NotFound", fmt.Errorf("signal: %w", kagzi.ErrNotFound), kagzi.KindNotFound},
		{"Compensated", kagzi.ErrCompensated, kagzi.KindBadRequest},
		{"RunFinished", kagzi.ErrRunFinished, kagzi.KindBadRequest},
		{"RunActiveMayEnd", kagzi.ErrRunActive, kagzi.KindUnknown},
		{"IDConflict", kagzi.ErrIDConflict, kagzi.KindBadRequest},
		{"IDTaken", kagzi.ErrIDTaken, kagzi.KindBadRequest},
		{"PayloadTooLarge", kagzi.ErrPayloadTooLarge, kagzi.KindBadRequest},
		{"LeaseLost", kagzi.ErrLeaseLost, kagzi.KindUnknown},
		{"Shutdown", kagzi.ErrShutdown, kagzi.KindUnknown},

		{"NilPointerInInterface", (*rudeError)(nil), kagzi.KindUnknown},
		{"NilStepErrorInInterface", (*kagzi.StepError)(nil), kagzi.KindUnknown},
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
	for code, want := range map[int]kagzi.Kind{
		0:   kagzi.KindUnknown,
		-1:  kagzi.KindUnknown,
		200: kagzi.KindUnknown,
		304: kagzi.KindUnknown,
		400: kagzi.KindBadRequest,
		401: kagzi.KindUnauthorized,
		402: kagzi.KindBadRequest,
		403: kagzi.KindUnauthorized,
		404: kagzi.KindNotFound,
		405: kagzi.KindBadRequest,
		408: kagzi.KindTimeout,
		409: kagzi.KindUnknown,
		410: kagzi.KindNotFound,
		413: kagzi.KindBadRequest,
		422: kagzi.KindValidation,
		423: kagzi.KindUnknown,
		425: kagzi.KindUnknown,
		429: kagzi.KindRateLimited,
		500: kagzi.KindUnknown,
		502: kagzi.KindUnavailable,
		503: kagzi.KindUnavailable,
		504: kagzi.KindUnavailable,
		529: kagzi.KindUnavailable,
		600: kagzi.KindUnknown,
	} {
		for _, err := range []error{statusError(code), fmt.Errorf("call: %w", httpStatusError(code))} {
			if got := kagzi.KindOf(err); got != want {
				t.Errorf("%T %d: got %q; want %q", err, code, got, want)
			}
		}
	}
	if got := kagzi.KindOf(fmt.Errorf("%w: %w", statusError(0), io.ErrUnexpectedEOF)); got != kagzi.KindNetwork {
		t.Errorf("a request without response: got %q", got)
	}
}

func TestKindOfRealFailures(t *testing.T) {
	t.Parallel()
	check := func(err error, want kagzi.Kind) {
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
	check(err, kagzi.KindNetwork)
	_, err = http.Get("http://" + addr)
	check(err, kagzi.KindNetwork)
	_, err = pgx.Connect(t.Context(), "postgres://u@"+addr+"/d?connect_timeout=5&sslmode=disable")
	check(err, kagzi.KindDatabase)

	released := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/abort":
			panic(http.ErrAbortHandler)
		case "/slow":
			<-released
		case "/short":
			w.Header().Set("Content-Length", "10")
			w.Write([]byte("x"))
		}
	}))
	defer server.Close()
	defer close(released)

	_, err = server.Client().Get(server.URL + "/abort")
	check(err, kagzi.KindNetwork)
	slow := *server.Client()
	slow.Timeout = 10 * time.Millisecond
	_, err = slow.Get(server.URL + "/slow")
	check(err, kagzi.KindTimeout)
	res, err := server.Client().Get(server.URL + "/short")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	_, err = io.ReadAll(res.Body)
	check(err, kagzi.KindNetwork)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	check(err, kagzi.KindCancelled)
}

func TestKindOfCanBeStored(t *testing.T) {
	t.Parallel()
	for _, k := range []kagzi.Kind{"a\x00b", "\xff\xfe", kagzi.Kind(strings.Repeat("ä", 10_000))} {
		got := string(kagzi.KindOf(k))
		if got == "" || len(got) > 255 || !utf8.ValidString(got) || strings.Contains(got, "\x00") {
			t.Errorf("KindOf(%.20q) = %q", k, got)
		}
	}
}

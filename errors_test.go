package kagzi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/kinds"
	"github.com/kagzi/kagzi/internal/replay"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/kind"
)

func TestKindRetryable(t *testing.T) {
	t.Parallel()
	for k, want := range map[kind.Kind]bool{
		kind.Network:        true,
		kind.Timeout:        true,
		kind.Database:       true,
		kind.RateLimited:    true,
		kind.Unavailable:    true,
		kind.Unknown:        true,
		kind.Panic:          false,
		kind.NotFound:       false,
		kind.Unauthorized:   false,
		kind.BadRequest:     false,
		kind.Validation:     false,
		kind.BadInput:       false,
		kind.Cancelled:      false,
		kind.Deadline:       false,
		kind.CrashLoop:      false,
		kind.Compensation:   false,
		kind.Nondeterminism: false,
		"of_the_user":       true,
	} {
		if got := k.Retryable(); got != want {
			t.Errorf("%s: got %v", k, got)
		}
	}
}

func TestMarks(t *testing.T) {
	t.Parallel()
	wrap := func(err error) error { return fmt.Errorf("wrapped: %w", err) }
	for _, test := range []struct {
		name      string
		err       error
		permanent bool
		after     time.Duration
		marked    bool // with RetryAfter
	}{
		{"Nil", nil, false, 0, false},
		{"Plain", io.ErrUnexpectedEOF, false, 0, false},
		{"KindNotWorthRetrying", wrap(fs.ErrNotExist), true, 0, false},
		{"KindOfTheUser", wrap(kind.Kind("declined")), false, 0, false},
		{"Permanent", wrap(Permanent(wrap(io.ErrUnexpectedEOF))), true, 0, false},
		{"PermanentKindOfTheUser", Permanent(kind.Kind("declined")), true, 0, false},
		{"RetryAfter", wrap(RetryAfter(errors.New("x"), time.Minute)), false, time.Minute, true},
		{"RetryAfterBeatsKind", RetryAfter(wrap(fs.ErrNotExist), time.Minute), false, time.Minute, true},
		{"RetryAfterNothing", RetryAfter(errors.New("x"), 0), false, 0, true},
		{"RetryAfterNegative", RetryAfter(errors.New("x"), -time.Minute), false, 0, true},
		{"OuterPermanent", Permanent(wrap(RetryAfter(errors.New("x"), time.Minute))), true, 0, false},
		{"OuterRetryAfter", RetryAfter(wrap(Permanent(errors.New("x"))), time.Minute), false, time.Minute, true},
		{
			"OuterRetryAfterOfTwo", RetryAfter(RetryAfter(errors.New("x"), time.Hour), time.Second), false,
			time.Second, true,
		},
		{
			"FirstOfJoined", errors.Join(errors.New("x"), Permanent(errors.New("y")), RetryAfter(errors.New("z"), 1)),
			true, 0, false,
		},
		{"StepError", wrap(&StepError{Kind: kind.Network}), false, 0, false},
		{"StepErrorByKind", wrap(&StepError{Kind: kind.Validation}), true, 0, false},
		{"StepErrorMarked", wrap(&StepError{Kind: kind.Unknown, permanent: true}), true, 0, false},
		{"RetryAfterAStepErrorMarked", RetryAfter(&StepError{permanent: true}, time.Second), false, time.Second, true},
		{"BranchErrors", BranchErrors{{Err: errors.New("x")}, {Err: Permanent(errors.New("y"))}}, true, 0, false},
		{"Panic", failure.OfPanic("boom", nil), true, 0, false},
		{"Goexit", failure.OfGoexit(), true, 0, false},
		{"NilPointerInInterface", (*rudeError)(nil), false, 0, false},
		{"NilStepErrorInInterface", (*StepError)(nil), false, 0, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := kinds.IsPermanent(test.err); got != test.permanent {
				t.Errorf("isPermanent = %v", got)
			}
			if after, ok := kinds.After(test.err); after != test.after || ok != test.marked {
				t.Errorf("retryAfter = %v, %v", after, ok)
			}
		})
	}

	t.Run("OfNilIsNil", func(t *testing.T) {
		t.Parallel()
		if Permanent(nil) != nil || RetryAfter(nil, time.Second) != nil {
			t.Error("a mark made an error of nil")
		}
	})
	t.Run("KeepTextAndChain", func(t *testing.T) {
		t.Parallel()
		inner := wrap(io.ErrUnexpectedEOF)
		for _, err := range []error{Permanent(inner), RetryAfter(inner, time.Second)} {
			if err.Error() != inner.Error() || !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%v is not %v", err, inner)
			}
		}
	})
}

func TestErrorStrings(t *testing.T) {
	t.Parallel()
	step := &StepError{Step: "authorize", Attempts: 3, Kind: kind.Network, Message: "connection refused"}
	many := make(BranchErrors, 12)
	for i := range many {
		many[i] = &BranchError{Index: i, Err: errors.New("x")}
	}
	for _, test := range []struct {
		name string
		err  error
		want string
	}{
		{"Step", step, `kagzi: step "authorize": connection refused (network, 3 attempts)`},
		{
			"StepOnce", &StepError{Step: "a", Attempts: 1, Kind: kind.Validation, Message: "bad"},
			`kagzi: step "a": bad (validation, 1 attempt)`,
		},
		{"StepEmpty", &StepError{}, `kagzi: step "": no message (unknown)`},
		{
			"StepPrefixOnce", &StepError{Step: "a", Kind: kind.NotFound, Message: "kagzi: run not found"},
			`kagzi: step "a": run not found (not_found)`,
		},
		{
			"StepWithStack", &StepError{Step: "a", Kind: kind.Panic, Message: "panic: boom\n\nmain.go:1\nmain.go:2"},
			`kagzi: step "a": panic: boom … (panic)`,
		},
		{
			"StepInLines", &StepError{Step: "a", Kind: kind.Unknown, Message: "one\ntwo\n"},
			`kagzi: step "a": one; two (unknown)`,
		},
		{
			"RunFailed", &RunError{
				Run: "0198", Workflow: "checkout", Status: StatusFailed, Kind: kind.Network,
				Message: step.Error(),
			},
			`kagzi: run 0198 of workflow "checkout" failed (network): step "authorize": connection refused (network, ` +
				`3 attempts)`,
		},
		{
			"RunCancelled", &RunError{Run: "0198", Workflow: "checkout", Status: StatusCancelled, Kind: kind.Cancelled},
			`kagzi: run 0198 of workflow "checkout" was cancelled`,
		},
		{"RunCancelledByReason", &RunError{
			Run: "0198", Workflow: "checkout", Status: StatusCancelled,
			Message: "run was cancelled: a typo",
		}, `kagzi: run 0198 of workflow "checkout" was cancelled: a typo`},
		{"RunTerminated", &RunError{
			Run: "0198", Workflow: "checkout", Status: StatusCancelled,
			Message: "run was terminated",
		}, `kagzi: run 0198 of workflow "checkout" was terminated`},
		{
			"RunCancelledWhy", &RunError{
				Run: "0198", Workflow: "checkout", Status: StatusCancelled,
				Message: "by parent",
			},
			`kagzi: run 0198 of workflow "checkout" was cancelled: by parent`,
		},
		{
			"Branch", &BranchError{Name: "eu", Err: step},
			`kagzi: branch "eu": step "authorize": connection refused (network, 3 attempts)`,
		},
		{
			"BranchOfBranch", &BranchError{Name: "eu", Err: &BranchError{Name: "fr", Err: io.EOF}},
			`kagzi: branch "eu": branch "fr": EOF`,
		},
		{"BranchWithoutName", &BranchError{Index: 7, Err: io.EOF}, `kagzi: branch 7: EOF`},
		{
			"BranchWithRudeError", &BranchError{Name: "eu", Err: (*rudeError)(nil)},
			`kagzi: branch "eu": *kagzi.rudeError, whose Error method panics: runtime error: invalid memory address ` +
				`or nil pointer dereference`,
		},
		{"BranchesOne", BranchErrors{{Name: "eu", Err: io.EOF}}, `kagzi: branch "eu": EOF`},
		{
			"BranchesTwo",
			BranchErrors{{Name: "eu", Err: io.EOF}, {Name: "us", Err: step}},
			`kagzi: 2 branches failed: branch "eu": EOF; branch "us": step "authorize": connection refused (network, ` +
				`3 attempts)`,
		},
		{
			"BranchesMany", many,
			`kagzi: 12 branches failed: branch 0: x; branch 1: x; branch 2: x; branch 3: x; branch 4: x; ` +
				`branch 5: x; branch 6: x; branch 7: x; branch 8: x; branch 9: x; and 2 more`,
		},
		{"Panic", failure.OfPanic("boom", nil), "panic: boom"},
		{"PanicWithError", failure.OfPanic(io.EOF, nil), "panic: EOF"},
		{"PanicNil", failure.OfPanic(nil, nil), "panic: <nil>"},
		{"Goexit", failure.OfGoexit(), "the function ended its goroutine with runtime.Goexit, as t.FailNow and " +
			"t.Fatal do"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := test.err.Error()
			if got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			if strings.Contains(got, "\n") {
				t.Error("not one line")
			}
		})
	}
	if !strings.Contains(replay.ErrForeignGoroutine.Error(), "kagzi.Go") ||
		KindOf(replay.ErrForeignGoroutine) != kind.BadRequest {
		t.Errorf("replay.ErrForeignGoroutine does not say to use kagzi.Go, or is of kind %q",
			KindOf(replay.ErrForeignGoroutine))
	}
	for says, err := range map[string]error{
		"kagzi: run not found":                          core.ErrRunNotFound,
		"kagzi: the run has no such step: Client.Steps": core.ErrStepNotFound,
		"kagzi: schedule not found":                     core.ErrScheduleNotFound,
		"kagzi: worker not found":                       core.ErrWorkerNotFound,
	} {
		if !errors.Is(err, ErrNotFound) || KindOf(err) != kind.NotFound || !strings.HasPrefix(err.Error(), says) {
			t.Errorf("%v, of kind %q", err, KindOf(err))
		}
	}
}

func TestErrorsAreTheirKindAndWrap(t *testing.T) {
	t.Parallel()
	const declined kind.Kind = "declined"
	step := &StepError{Step: "a", Kind: declined}
	for _, err := range []error{
		step,
		fmt.Errorf("wrapped: %w", step),
		&RunError{Kind: declined},
		&BranchError{Name: "b", Err: step},
		BranchErrors{{Err: io.EOF}, {Err: step}},
	} {
		if !errors.Is(err, declined) || errors.Is(err, kind.Timeout) {
			t.Errorf("%T is not of its kind", err)
		}
	}
	branches := BranchErrors{{Name: "a", Err: io.EOF}, {Name: "b", Err: step}}
	if got, ok := errors.AsType[*StepError](error(branches)); !ok || got != step {
		t.Error("a StepError is not found in BranchErrors")
	}
	if got, ok := errors.AsType[*BranchError](error(branches)); !ok || got.Name != "a" {
		t.Error("a BranchError is not found in BranchErrors")
	}
	if !errors.Is(branches, io.EOF) {
		t.Error("a branch's error is not found in BranchErrors")
	}
	if err := failure.OfPanic(context.Canceled, nil); !errors.Is(err, kind.Panic) || KindOf(err) != kind.Panic ||
		errors.Is(err, context.Canceled) {
		t.Error("a panic is its kind, not its value")
	}
	if err := failure.OfGoexit(); !errors.Is(err, kind.Panic) || KindOf(err) != kind.Panic {
		t.Error("a Goexit is of kind panic")
	}
}

type rudeError struct{ text string }

func (e *rudeError) Error() string { return e.text } // panics on a nil pointer

// A rudeValue panics whatever is asked of it, and so does what it panics with.
type rudeValue struct{}

func (rudeValue) String() string { panic(rudeValue{}) }
func (rudeValue) Error() string  { panic(rudeValue{}) }
func (rudeValue) Unwrap() error  { panic(rudeValue{}) }

func TestErrorText(t *testing.T) {
	t.Parallel()
	t.Run("OfNil", func(t *testing.T) {
		t.Parallel()
		if got := failure.Text(nil); got != "" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("IsSanitised", func(t *testing.T) {
		t.Parallel()
		if got, want := failure.Text(errors.New("a\x00b\xff\nc")), "a\uFFFDb\uFFFD\nc"; got != want {
			t.Errorf("got %q; want %q", got, want)
		}
		if got := failure.Text(errors.New(strings.Repeat("x", 1e6))); len(got) != text.MaxError ||
			!strings.HasSuffix(got, "… (truncated, 1000000 bytes)") {
			t.Errorf("%d bytes, ends with %q", len(got), got[len(got)-40:])
		}
	})
	t.Run("NeverEmpty", func(t *testing.T) {
		t.Parallel()
		if got, want := failure.Text(errors.New("")), "*errors.errorString without a text"; got != want {
			t.Errorf("got %q; want %q", got, want)
		}
	})
	t.Run("OfErrorsThatPanic", func(t *testing.T) {
		t.Parallel()
		for _, err := range []error{
			(*rudeError)(nil),
			rudeValue{},
			Permanent(rudeValue{}),
			failure.OfPanic(rudeValue{}, nil), &BranchError{Err: rudeValue{}},
		} {
			if got := failure.Text(err); !strings.Contains(got, "rude") && !strings.Contains(got, "marked") {
				t.Errorf("%T: got %q", err, got)
			}
			_, _, _ = KindOf(err), kinds.IsPermanent(err), failure.Text(err)
			kinds.After(err)
		}
	})
}

func TestPanicCarriesTheUsersStack(t *testing.T) {
	t.Parallel()
	var err error
	func() {
		defer func() { err = failure.OfPanic(recover(), debug.Stack()) }()
		_ = strings.Fields("")[7]
	}()
	wrapped := fmt.Errorf("handler: %w", err)
	stored := failure.Text(wrapped)
	head, stack, _ := strings.Cut(stored, "\n\n")
	if head != "handler: panic: runtime error: index out of range [7] with length 0" {
		t.Errorf("head is %q", head)
	}
	if first, _, _ := strings.Cut(stack, "\n"); !strings.Contains(first, "TestPanicCarriesTheUsersStack") {
		t.Errorf("the stack does not begin in the function that panicked:\n%s", stack)
	}
	if !strings.Contains(stack, "errors_test.go:") {
		t.Errorf("no position in:\n%s", stack)
	}

	long := fmt.Errorf("%s: %w", strings.Repeat("x", 1e6), err)
	if got := failure.Text(long); len(got) > text.MaxError || !strings.Contains(got, "errors_test.go:") {
		t.Errorf("a long message pushed the stack out of %d bytes", len(got))
	}
	huge := failure.OfPanic("boom", []byte(strings.Repeat("frame\n", 1e5)))
	if got := failure.Text(huge); len(got) > text.MaxError || !strings.HasPrefix(got, "panic: boom\n\nframe\n") {
		t.Errorf("%d bytes of %.40q", len(got), got)
	}
}

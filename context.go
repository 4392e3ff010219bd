package kagzi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/replay"
)

// A workflow function gets a Context. Each belongs to one goroutine: that of its run or of a branch. It deliberately is
// no context.Context: I/O belongs in a step, whose ctx is one.
//
// A durable operation ([Step], [Sleep], [Go] and so on) returns an error if it is called from another goroutine than
// the Context's. This and any other wrong call, such as one with a bad name or option, is an error of [kind.BadRequest]
// that the function should return: if it drops the error, the run fails with it at its end, unless the function returns
// another error. If another goroutine has made such a call, the run fails when its goroutine would end for a long wait,
// because a replay may never reach that call again.
//
// Deferred functions of a workflow run whenever its goroutine ends, also at each long sleep: they may release memory
// and locks, and nothing else.
type Context interface {
	// Done is closed when the run or branch is cancelled, and Err returns the cause then. They are for code that
	// computes for long outside of steps, so that it can return. Do not branch on them to execute other steps: a replay
	// may see another answer.
	Done() <-chan struct{}
	Err() error
	RunID() RunID
	Attempt() int // of the run, from 1
	// when the last step of this branch ended, by the database's clock, in UTC: the same in every replay
	Now() time.Time
	Logger() *slog.Logger // silent about replayed lines
	// FireTime is the tick for which a schedule started the run. The run may execute much later, after downtime or a
	// backfill. For any other run it is the zero time, also for one that [Client.TriggerSchedule] started:
	//
	//	t := ctx.FireTime()
	//	if t.IsZero() {
	//		t = ctx.Now()
	//	}
	FireTime() time.Time
	// Metadata are the tags of the run's start, with the changes by [SetMetadata] that this branch knows of: its own,
	// those made before it began, and those of branches that it has waited for. They are the same in every replay. The
	// map is a copy, nil if there are none.
	Metadata() Metadata
	// Headers are those of the run: see [Headers]. They are the same in every replay. The map is a copy, nil if there
	// are none.
	Headers() Headers
	scope() *runContext
}

// A runContext is the Context of a branch of a run.
type runContext struct {
	b *replay.Branch
	c *Client
}

func (r *runContext) Done() <-chan struct{} { return r.b.Done() }
func (r *runContext) Err() error            { return r.b.Err() }
func (r *runContext) RunID() RunID          { return RunID(r.b.RunID()) }
func (r *runContext) Attempt() int          { return r.b.Attempt() }
func (r *runContext) Now() time.Time        { return r.b.Now() }
func (r *runContext) Logger() *slog.Logger  { return r.b.Logger() }
func (r *runContext) FireTime() time.Time   { return r.b.FireTime() }
func (r *runContext) Metadata() Metadata    { return r.b.Metadata() }
func (r *runContext) Headers() Headers      { return maps.Clone(Headers(r.b.Headers())) }
func (r *runContext) scope() *runContext    { return r }

// Engine is for tests of the engine.
func (r *runContext) Engine() *replay.Branch { return r.b }

// Lease, Closed and Goroutine are for tests: see testhook.Branch.
func (r *runContext) Lease() uuid.UUID   { return r.b.Lease() }
func (r *runContext) Closed() bool       { return r.b.Closed() }
func (r *runContext) Goroutine() uintptr { return r.b.Goroutine() }

var errNilContext = failure.BadRequest(errors.New("kagzi: the Context is nil: a workflow function gets one from " +
	"its worker"))

// branchOf returns the branch behind ctx, and the client of its worker.
func branchOf(ctx Context) (*replay.Branch, *Client, error) {
	r, ok := ctx.(*runContext)
	if !ok || r == nil {
		return nil, nil, errNilContext
	}
	return r.b, r.c, nil
}

// StepInfo describes the attempt of a step to which a ctx belongs: see [CurrentStep].
type StepInfo struct {
	Run      RunID
	Workflow string
	Step     string // with its branches: "ship/pack"
	// from 1; it keeps counting in a new attempt of the run and after Resume. An execution that a crash or drain
	// interrupted does not count: the next has its number
	Attempt int
	Key     string // the same in every attempt of this step: an idempotency key for other services
	// of the run; nil if there are none. From CurrentStep they are a copy, in an Interceptor they are shared
	Headers Headers
}

// A stepScope is the context of one attempt of a step.
type stepScope struct {
	context.Context
	step  replay.StepIdentity
	sends sends
}

// Value returns the scope for stepKey.
func (s *stepScope) Value(key any) any {
	if _, ok := key.(stepKey); ok {
		return s
	}
	return s.Context.Value(key)
}

// sends counts what an attempt of a step has sent: messages and events.
type sends struct {
	mu sync.Mutex
	n  map[string]int // by everything that distinguishes it
}

// sendID makes the ID of what a step sends, with parts that distinguish it. It is the same in each attempt. A further
// attempt may send other things, or in another order, so they are told apart by a hash of their payload, and not by
// their position. Equal ones are counted. Outside of a step there is none, and ok is false.
func sendID(ctx context.Context, parts ...string) (id string, ok bool) {
	scope := scopeOf(ctx)
	if scope == nil {
		return "", false
	}
	s, sent := &scope.sends, fmt.Sprintf("%q", parts)
	s.mu.Lock()
	if s.n == nil {
		s.n = map[string]int{}
	}
	s.n[sent]++
	n := s.n[sent]
	s.mu.Unlock()
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %s %d", CurrentStep(ctx).Key, sent, n))
	return "step:" + hex.EncodeToString(sum[:16]), true
}

type stepKey struct{}

// stepContext returns the context of an attempt of a step.
func stepContext(ctx context.Context, s replay.StepIdentity) context.Context {
	return &stepScope{Context: ctx, step: s}
}

// scopeOf returns the scope of the attempt that ctx belongs to, or nil outside of a step.
func scopeOf(ctx context.Context) *stepScope {
	scope, _ := ctx.Value(stepKey{}).(*stepScope)
	return scope
}

// CurrentStep returns the step that ctx belongs to, or the zero StepInfo outside of a step.
func CurrentStep(ctx context.Context) StepInfo {
	if scope := scopeOf(ctx); scope != nil {
		info := stepInfo(scope.step)
		info.Headers = maps.Clone(info.Headers)
		return info
	}
	return StepInfo{}
}

// stepInfo returns the step in the words of the API. The Headers are shared.
func stepInfo(s replay.StepIdentity) StepInfo {
	return StepInfo{RunID(s.Run), s.Workflow, s.Step, s.Attempt, s.Run + "/" + s.Step, s.Headers}
}

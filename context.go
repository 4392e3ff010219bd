package kagzi

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/payloads"
	"github.com/kagzi/kagzi/internal/replay"
)

// A workflow function gets a Context. Each belongs to one goroutine: that of its run or of a branch. It deliberately is
// no context.Context: I/O belongs in a step, whose ctx is one.
//
// A wrong call of a durable operation ([Step], [Sleep], [Go] and so on) is an error of [kind.BadRequest]: one with a
// bad name or option, or from another goroutine than the Context's. The function should return it: if it drops the
// error, the run fails with it at its end, unless the function returns another error. See docs/workflows.md.
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
	// backfill. For any other run it is the zero time, also for one that admin.Schedules.Trigger started:
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

// Engine is for packages topic and request, and for tests of the engine. Core and Client are for the packages.
func (r *runContext) Engine() *replay.Branch { return r.b }
func (r *runContext) Core() *core.Client     { return r.c.core }
func (r *runContext) Client() *Client        { return r.c }

// Lease, Closed and Goroutine are for tests: see testhook.Branch.
func (r *runContext) Lease() uuid.UUID   { return r.b.Lease() }
func (r *runContext) Closed() bool       { return r.b.Closed() }
func (r *runContext) Goroutine() uintptr { return r.b.Goroutine() }

// branchOf returns the branch behind ctx, and the client of its worker.
func branchOf(ctx Context) (*replay.Branch, *Client, error) {
	r, ok := ctx.(*runContext)
	if !ok || r == nil {
		return nil, nil, core.ErrNilContext
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
	coder *payloads.Coder // of its client
	sends sends
}

// Value returns the scope for stepKey and core.SenderKey.
func (s *stepScope) Value(key any) any {
	switch key.(type) {
	case stepKey, core.SenderKey:
		return s
	}
	return s.Context.Value(key)
}

// StepKey is the Key of the step's StepInfo.
func (s *stepScope) StepKey() string { return s.step.Run + "/" + s.step.Key }

// AwaitsRun notes that the attempt waits for a run.
func (s *stepScope) AwaitsRun(id uuid.UUID) (ended func()) { return s.step.By.AwaitsRun(id) }

// Count counts what the attempt sends: see core.SendID.
func (s *stepScope) Count(parts string) int {
	s.sends.mu.Lock()
	defer s.sends.mu.Unlock()
	if s.sends.n == nil {
		s.sends.n = map[string]int{}
	}
	s.sends.n[parts]++
	return s.sends.n[parts]
}

// sends counts what an attempt of a step has sent: messages and events.
type sends struct {
	mu sync.Mutex
	n  map[string]int // by everything that distinguishes it
}

type stepKey struct{}

// stepContext returns the context of an attempt of a step.
func (c *Client) stepContext(ctx context.Context, s replay.StepIdentity) context.Context {
	return &stepScope{Context: ctx, step: s, coder: &c.core.Payloads}
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
	return StepInfo{RunID(s.Run), s.Workflow, s.Step, s.Attempt, s.Run + "/" + s.Key, s.Headers}
}

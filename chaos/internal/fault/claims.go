package fault

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/kagzi/kagzi/chaos/internal/fleet"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

// claimFaults are about claims that took runs of which the worker does not hear, or hears late.
func claimFaults() []Fault {
	return []Fault{
		// F11: the server commits a claim that takes runs, and the worker does not get its answer.
		{
			Name: "F11 lost answer to a claim", Kind: "F11",
			Inject: losing(true, func(_ *rand.Rand, p *pgproxy.Proxy) (*pgproxy.Drop, string) {
				return p.DropAckIf(pgproxy.Contains(named("a claim").part), tookRuns), "a claim"
			}),
		},
		// F11: claims reach the server when their workers have given them up, and have looked for what they took.
		{Name: "F11 late claims", Kind: "F11", Inject: lateClaims},
		// F2: a worker is frozen before it gets the answer to a claim, and goes on when others have the claim's runs.
		{Name: "F2 freeze a worker that claims", Kind: "F2", Inject: freezeClaim},
		// F26: SIGTERM while a claim is on its way to the server.
		{Name: "F26 SIGTERM during a claim", Kind: "F26", Inject: terminateClaim},
	}
}

// tookRuns chooses the rows of a claim's answer that have a run.
func tookRuns(columns [][]byte) bool {
	const id, of = 7, 32 // of all columns
	return len(columns) == of && columns[id] != nil
}

// resolve is the statement by which a worker looks for the runs of a claim whose answer it does not know. Other faults
// do not choose it.
var resolve = statement{"a look for the runs of a claim", "q.lease = ANY ($5::uuid[])", "kagzi.workflow_runs"}

// givesUp is how long a worker waits for the answer to a claim.
func givesUp(t Times) time.Duration { return max(min(t.Lease, t.Stale)/3, time.Second) }

// A heldClaim is a claim that a proxy holds back.
type heldClaim struct {
	*pgproxy.Drop
	place   *fleet.Place
	process *fleet.Process // the worker's
	since   time.Time
}

// heldClaims are all claims that workers have sent since holdClaims was called, the oldest first.
type heldClaims struct {
	mu  sync.Mutex
	all []heldClaim
	end context.CancelFunc
	ran sync.WaitGroup
}

// holdClaims holds back all claims of all workers, until one of the methods of what it returns lets them go. So the
// runs that become due wait for them.
func (w *World) holdClaims(ctx context.Context) *heldClaims {
	h := &heldClaims{}
	ctx, h.end = context.WithCancel(ctx)
	for _, p := range w.Places {
		h.ran.Go(func() {
			for ctx.Err() == nil {
				drop := p.Proxy.HoldRequest(pgproxy.Contains(named("a claim").part), tookRuns)
				for !drop.Holds() && ctx.Err() == nil {
					pause(ctx, look)
				}
				if drop.Cancel() { // it has not begun
					continue
				}
				h.mu.Lock()
				h.all = append(h.all, heldClaim{drop, p, p.Process(), time.Now()})
				h.mu.Unlock()
			}
		})
	}
	return h
}

// from returns the claims of a place.
func (h *heldClaims) from(place *fleet.Place) (some []heldClaim) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.all {
		if c.place == place {
			some = append(some, c)
		}
	}
	return some
}

// release forwards all claims, and returns those that took runs.
func (h *heldClaims) release() (took []heldClaim) {
	h.end()
	h.ran.Wait()
	for _, c := range h.all {
		c.forward()
	}
	answers, cancel := context.WithTimeout(context.Background(), answersIn)
	defer cancel()
	for _, c := range h.all {
		if c.tookRuns(answers) {
			took = append(took, c)
		}
	}
	return took
}

// resume forwards the claims for which workers still wait. The others are lost.
func (h *heldClaims) resume(t Times) {
	h.end()
	h.ran.Wait()
	for _, c := range h.all {
		c.inTime(t)
	}
}

// forward lets the claim go. That of a process that has died is lost: others take what it took only much later.
func (c heldClaim) forward() {
	if c.process == nil || !c.process.Alive() {
		c.Discard()
	}
	c.Release()
}

// answersIn is how long the server may take to answer claims that were forwarded.
const answersIn = 3 * time.Second

// tookRuns reports whether a claim that was forwarded took runs, as far as is known when ctx ends. One whose connection
// was cut is lost.
func (c heldClaim) tookRuns(ctx context.Context) bool {
	select {
	case <-c.Done():
	case <-ctx.Done():
	}
	return c.Found() && c.Committed()
}

// inTime forwards the claim if its worker waits for it, with a margin for a busy machine, and reports whether it took
// runs. Otherwise the claim is lost.
func (c heldClaim) inTime(t Times) bool {
	if time.Since(c.since) > givesUp(t)*2/3 {
		c.Discard()
	}
	c.forward()
	answer, cancel := context.WithTimeout(context.Background(), answersIn)
	defer cancel()
	return c.tookRuns(answer)
}

// lateClaims counts the claims that took runs after their workers had given them up.
func lateClaims(ctx context.Context, w *World, _ *rand.Rand, d time.Duration) (effect int, note string, err error) {
	for begun := time.Now(); ctx.Err() == nil &&
		(time.Since(begun) < d || effect == 0 && time.Since(begun) < 3*patience); {
		looks := w.count(resolve)
		held := w.holdClaims(ctx)
		pause(ctx, givesUp(w.Times))
		until(ctx, slice(w), func() bool { return looks.seen(nil) > 1 })
		pause(ctx, time.Second)
		looks.stop()
		for _, c := range held.release() {
			if late := time.Since(c.since); late > givesUp(w.Times) {
				effect++
				note += fmt.Sprintf("place %d, %v late; ", c.place.Number, late.Round(time.Millisecond))
			}
		}
	}
	return effect, note, ctx.Err()
}

// A counter counts the executions of a statement by the workers of each place.
type counter struct {
	seenBy  map[*fleet.Place]*atomic.Int64
	watches []*pgproxy.Drop
}

// count counts until stop is called.
func (w *World) count(s statement) *counter {
	c := &counter{seenBy: map[*fleet.Place]*atomic.Int64{}}
	for _, p := range w.Places {
		n := &atomic.Int64{}
		c.seenBy[p] = n
		c.watches = append(c.watches, p.Proxy.DropRequest(func(conn int, sql string) bool { // loses none
			if pgproxy.Contains(s.part)(conn, sql) {
				n.Add(1)
			}
			return false
		}))
	}
	return c
}

// seen returns how many executions there were from a place, or from the place with the most of them if that is nil.
func (c *counter) seen(place *fleet.Place) (n int64) {
	for p, seen := range c.seenBy {
		if place == nil || p == place {
			n = max(n, seen.Load())
		}
	}
	return n
}

func (c *counter) stop() {
	for _, d := range c.watches {
		d.Cancel()
	}
}

// terminateClaim counts the claims that took runs after their worker had begun to drain, and had looked for what they
// took.
func terminateClaim(ctx context.Context, w *World, r *rand.Rand, d time.Duration) (effect int, note string, err error) {
	for begun := time.Now(); ctx.Err() == nil && effect == 0 && time.Since(begun) < d+3*patience; {
		place, release, err := w.take(ctx, r, nil)
		if err != nil {
			return 0, note, err
		}
		process := place.Process()
		took := w.terminateAs(ctx, place, process)
		ended, err := w.drain(process)
		release()
		if err != nil {
			return 1, note, err
		}
		if took && ended {
			effect++
			note += fmt.Sprintf("worker %s; ", process.Spec.Name)
		}
	}
	return effect, note, ctx.Err()
}

// terminateAs sends SIGTERM to a process as a claim of it is on its way. It reports whether that claim took runs.
func (w *World) terminateAs(ctx context.Context, place *fleet.Place, process *fleet.Process) (took bool) {
	looks := w.count(resolve)
	defer looks.stop()
	held := w.holdClaims(ctx)
	defer held.resume(w.Times)
	if !until(ctx, slice(w), func() bool { return len(held.from(place)) > 0 }) {
		return false
	}
	pause(ctx, givesUp(w.Times)/5) // some runs become due
	before := looks.seen(place)
	if process.Signal(syscall.SIGTERM) != nil ||
		!until(ctx, givesUp(w.Times), func() bool { return looks.seen(place) > before }) {
		return false
	}
	for _, c := range held.from(place) {
		took = c.inTime(w.Times) || took
	}
	return took
}

// freezeClaim counts the runs that others took from a worker that had not yet got the answer to its claim of them.
func freezeClaim(ctx context.Context, w *World, r *rand.Rand, d time.Duration) (effect int, note string, err error) {
	for begun := time.Now(); ctx.Err() == nil &&
		(time.Since(begun) < d || effect == 0 && time.Since(begun) < 6*patience); {
		place, release, err := w.take(ctx, r, nil)
		if err != nil {
			return effect, note, err
		}
		drop := place.Proxy.HoldAckIf(pgproxy.Contains(named("a claim").part), tookRuns)
		taken := 0
		if until(ctx, slice(w), drop.Holds) {
			taken, err = w.freezeUntilTaken(ctx, place, drop.Release)
		}
		drop.Cancel()
		drop.Release()
		release()
		if effect += taken; taken > 0 {
			note += fmt.Sprintf("place %d, others took %d; ", place.Number, taken)
		}
		if err != nil {
			return effect, note, err
		}
	}
	return effect, note, ctx.Err()
}

// freezeUntilTaken freezes a worker, calls then, and lets the worker go on when others have taken some of its runs. It
// returns how many.
func (w *World) freezeUntilTaken(ctx context.Context, place *fleet.Place, then func()) (taken int, err error) {
	v, resume, err := w.freeze(ctx, place)
	if err != nil {
		if process := place.Process(); process == nil || !process.Alive() {
			err = nil // something else has killed it
		}
		return 0, err
	}
	defer resume()
	then()
	return w.awaitTaken(ctx, v), nil
}

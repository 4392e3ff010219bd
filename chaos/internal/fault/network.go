package fault

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/notify"
)

func networkFaults() []Fault {
	return []Fault{
		// F10: connections are closed, at random moments.
		{Name: "F10 cut connections", Kind: "F10", Inject: cutting((*pgproxy.Proxy).Cut)},
		// F10: connections are reset, at random moments: RST in place of FIN.
		{Name: "F10 reset connections", Kind: "F10", Inject: cutting((*pgproxy.Proxy).Reset)},
		// F10: everything arrives 5 to 100 ms later.
		{Name: "F10 slow network", Kind: "F10", Inject: imposing(func(r *rand.Rand) pgproxy.Trouble {
			return pgproxy.Trouble{Delay: time.Duration(5+r.IntN(96)) * time.Millisecond}
		})},
		// F10: messages arrive in pieces, at worst byte by byte.
		{Name: "F10 messages in pieces", Kind: "F10", Inject: imposing(func(r *rand.Rand) pgproxy.Trouble {
			return pgproxy.Trouble{Chunk: []int{1, 3, 100}[r.IntN(3)]}
		})},
		// F10: nothing arrives, and all connections stay open.
		{Name: "F10 black hole", Kind: "F10", Inject: imposing(func(*rand.Rand) pgproxy.Trouble {
			return pgproxy.Trouble{Frozen: true}
		})},
		// F10: nothing arrives over some connections; the others work.
		{Name: "F10 black hole for some connections", Kind: "F10", Inject: imposing(func(r *rand.Rand) pgproxy.Trouble {
			odd := r.IntN(2)
			return pgproxy.Trouble{Frozen: true, Only: func(c pgproxy.Conn) bool { return c.Number%2 == odd }}
		})},
		// F10: the old connections are cut and new ones are refused.
		{Name: "F10 no new connections", Kind: "F10", Inject: refuse},
		// F11: the server commits, and the answer to a COMMIT is lost.
		{
			Name: "F11 lost answer to a COMMIT", Kind: "F11",
			Inject: losing(true, func(r *rand.Rand, p *pgproxy.Proxy) (*pgproxy.Drop, string) {
				s := someStatement(r)
				return p.DropAck(s.commit()), "the COMMIT after " + s.name
			}),
		},
		// F11: the answer to the nth statement of some kind is lost.
		{
			Name: "F11 lost answer to a statement", Kind: "F11",
			Inject: losing(true, func(r *rand.Rand, p *pgproxy.Proxy) (*pgproxy.Drop, string) {
				s := someStatement(r)
				return p.DropAck(s.match(1 + r.IntN(5))), s.name
			}),
		},
		// F11: the nth statement of some kind does not reach the server.
		{
			Name: "F11 lost request", Kind: "F11",
			Inject: losing(false, func(r *rand.Rand, p *pgproxy.Proxy) (*pgproxy.Drop, string) {
				s := someStatement(r)
				return p.DropRequest(s.match(1 + r.IntN(5))), s.name
			}),
		},
		// F11: the connection ends after a request; the client does not know what the server did.
		{
			Name: "F11 connection ends after a request", Kind: "F11",
			Inject: losing(false, func(r *rand.Rand, p *pgproxy.Proxy) (*pgproxy.Drop, string) {
				s := someStatement(r)
				return p.DropLink(s.match(1 + r.IntN(5))), s.name
			}),
		},
		// F11: the answer to a claim, a record or a heartbeat comes when the lease is over.
		{Name: "F11 answer after the end of the lease", Kind: "F11", Inject: hold},
		// F27: no notification reaches a worker.
		{Name: "F27 deaf listeners", Kind: "F27", Inject: imposing(func(*rand.Rand) pgproxy.Trouble {
			return pgproxy.Trouble{Deaf: pgproxy.Everything}
		})},
		// F27: hints are lost, and the notifications by which a listener tests its connection arrive: no worker knows
		// of the loss.
		{Name: "F27 lost hints", Kind: "F27", Inject: imposing(func(*rand.Rand) pgproxy.Trouble {
			return pgproxy.Trouble{Deaf: IsHint}
		})},
		// F27: the connections that listen are black holes.
		{Name: "F27 black hole for listeners", Kind: "F27", Inject: imposing(func(*rand.Rand) pgproxy.Trouble {
			return pgproxy.Trouble{Frozen: true, Only: pgproxy.Listens}
		})},
	}
}

// IsHint reports whether a notification says that work is due, or that a run has changed. Those by which a listener
// tests its own connection do not, nor does what the leading coordinator says.
func IsHint(channel, payload string) bool {
	return channel != notify.LeadChannel && !strings.HasPrefix(payload, "probe ")
}

// cutting ends all connections of some places, or each with the chance of a half, a few times within d.
func cutting(end func(*pgproxy.Proxy, func(pgproxy.Conn) bool) int) Injection {
	return func(ctx context.Context, w *World, r *rand.Rand, d time.Duration) (effect int, note string, err error) {
		for stop := time.Now().Add(d + patience); ctx.Err() == nil && time.Now().Before(stop); {
			for _, p := range w.somePlaces(r) {
				var only func(pgproxy.Conn) bool
				if r.IntN(2) == 0 {
					side := r.IntN(2)
					only = func(c pgproxy.Conn) bool { return c.Number%2 == side }
				}
				effect += end(p.Proxy, only)
			}
			pause(ctx, time.Duration(r.Int64N(int64(d)+1)))
			if effect > 0 && time.Until(stop) < patience {
				break
			}
		}
		return effect, fmt.Sprintf("%d connections", effect), ctx.Err()
	}
}

// imposing has some places suffer a Trouble for d, and for longer if it has not hit anything by then.
func imposing(make func(*rand.Rand) pgproxy.Trouble) Injection {
	return func(ctx context.Context, w *World, r *rand.Rand, d time.Duration) (effect int, note string, err error) {
		t := make(r)
		places := w.somePlaces(r)
		var all []*pgproxy.Imposed
		for _, p := range places {
			i := p.Proxy.Impose(t)
			defer i.Lift()
			all = append(all, i)
		}
		begun := time.Now()
		until(ctx, d+patience, func() bool {
			effect = 0
			for _, i := range all {
				effect += i.Count()
			}
			return effect > 0 && time.Since(begun) >= d
		})
		return effect, fmt.Sprintf("%d places, delay %v, pieces of %d, hit %d times", len(places), t.Delay, t.Chunk,
			effect), ctx.Err()
	}
}

// refuse cuts the connections of some places, so that they need new ones, which are refused.
func refuse(ctx context.Context, w *World, r *rand.Rand, d time.Duration) (int, string, error) {
	refused := imposing(func(*rand.Rand) pgproxy.Trouble { return pgproxy.Trouble{Refuse: true} })
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cut := make(chan int, 1)
	go func() {
		pause(ctx, 20*time.Millisecond)
		n := 0
		for _, p := range w.proxies() {
			n += p.Cut(nil)
		}
		cut <- n
	}()
	effect, note, err := refused(ctx, w, r, d)
	return effect, fmt.Sprintf("%s; %d connections were cut before", note, <-cut), err
}

// losing arms losses one after the other for d, and until one has happened. If committed, only those count that the
// server had executed.
func losing(committed bool, arm func(*rand.Rand, *pgproxy.Proxy) (*pgproxy.Drop, string)) Injection {
	return func(ctx context.Context, w *World, r *rand.Rand, d time.Duration) (effect int, note string, err error) {
		begun := time.Now()
		for ctx.Err() == nil && (time.Since(begun) < d || effect == 0 && time.Since(begun) < d+2*patience) {
			p := w.proxies()[r.IntN(len(w.proxies()))]
			drop, what := arm(r, p)
			timer := time.NewTimer(slice(w) / 2)
			select {
			case <-drop.Done():
				if !committed || drop.Committed() {
					effect++
					note += what + "; "
				}
			case <-timer.C:
			case <-ctx.Done():
			}
			timer.Stop()
			drop.Cancel()
		}
		return effect, note, ctx.Err()
	}
}

// hold keeps answers back until the lease, or the time to be stale, is over.
func hold(ctx context.Context, w *World, r *rand.Rand, d time.Duration) (effect int, note string, err error) {
	past := min(max(w.Times.Lease, w.Times.Stale), longestFreeze) * 11 / 10
	begun := time.Now()
	for ctx.Err() == nil && (effect == 0 && time.Since(begun) < 3*patience || time.Since(begun) < d) {
		s := someStatement(r, "a claim", "a record of a step", "a heartbeat", "an extension of leases",
			"a run's success")
		drop := w.Places[r.IntN(len(w.Places))].Proxy.HoldAck(s.match(1 + r.IntN(3)))
		until(ctx, slice(w), drop.Holds)
		held := drop.Holds() // the client waits
		if held {
			until(ctx, past, func() bool { return !drop.Holds() })
		}
		switch {
		case !held || ctx.Err() != nil:
		case drop.Holds():
			effect++
			note += fmt.Sprintf("%s, %v late; ", s.name, past)
		default:
			effect++
			note += fmt.Sprintf("%s, and the worker stopped waiting for it; ", s.name)
		}
		drop.Cancel()
		drop.Release()
	}
	return effect, note, ctx.Err()
}

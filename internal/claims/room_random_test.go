package claims

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kagzi/kagzi/store"
)

// A sim is a session's use of a policy: the claim loop, runs that take time, runs that begin without a claim.
type sim struct {
	name    string
	mu      sync.Mutex
	p       *Policy
	freed   chan struct{}
	wake    chan struct{}
	stop    chan struct{}
	rnd     *rand.Rand
	backlog int // due runs in the database
	waiting int // claimed, without a slot
	began   int
	want    time.Time // since when a run is due and none has begun
	w       *world
	lastBeg time.Time
	wg      sync.WaitGroup
}

type world struct {
	room    *Room
	mu      sync.Mutex
	running int
	most    int
	sims    []*sim
	t       *testing.T
}

func (w *world) begin(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running += n
	w.most = max(w.most, w.running)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func newSim(w *world, name string, slots int, seed uint64) *sim {
	s := &sim{
		name: name, w: w, freed: make(chan struct{}, 1), wake: make(chan struct{}, 1), stop: make(chan struct{}),
		rnd: rand.New(rand.NewPCG(seed, 7)),
	}
	s.p = New(Config{
		Types: types, Slots: slots, PollInterval: 5 * time.Second, FailurePause: 250 * time.Millisecond,
		Random: rand.New(rand.NewPCG(seed, 1)), Room: w.room, Wake: func() { signal(s.freed) },
	})
	s.p.SetQueues(map[string]int{"q": 1}, time.Now())
	s.p.Registered([]string{"q"})
	return s
}

func (s *sim) moment() Moment { return Moment{Now: time.Now(), Database: time.Now()} }

func (s *sim) startWaiting() {
	for {
		s.mu.Lock()
		if !s.p.Begin() {
			s.mu.Unlock()
			return
		}
		s.waiting--
		s.began++
		s.lastBeg = time.Now()
		d := s.duration()
		s.mu.Unlock()
		s.execute(d)
	}
}

func (s *sim) duration() time.Duration {
	switch s.rnd.IntN(20) {
	case 0:
		return time.Duration(s.rnd.IntN(500)) * time.Millisecond
	case 1, 2, 3:
		return time.Duration(s.rnd.IntN(20)) * time.Millisecond
	}
	return time.Duration(s.rnd.IntN(8000)) * time.Microsecond
}

func (s *sim) execute(d time.Duration) {
	s.w.begin(1)
	s.wg.Go(func() {
		time.Sleep(d)
		s.w.begin(-1)
		s.free()
	})
}

func (s *sim) free() {
	s.mu.Lock()
	s.p.Free("q")
	s.mu.Unlock()
	s.startWaiting()
	s.mu.Lock()
	claim := s.p.WantsRuns()
	s.mu.Unlock()
	if claim {
		signal(s.freed)
	}
}

func (s *sim) loop() {
	timer := time.NewTimer(0)
	for {
		select {
		case <-s.stop:
			s.mu.Lock()
			s.p.Close(time.Now())
			n := s.waiting
			for range n {
				s.p.GiveBack("q")
			}
			s.waiting = 0
			s.mu.Unlock()
			return
		default:
		}
		s.startWaiting()
		s.mu.Lock()
		plan := s.p.Plan(s.moment(), false)
		s.mu.Unlock()
		switch {
		case plan.Claims:
			s.claim(&plan)
		case plan.Wait > 0:
			timer.Reset(plan.Wait)
			select {
			case <-s.stop:
			case <-s.wake:
			case <-timer.C:
			}
		default:
			timer.Reset(Ahead)
			select {
			case <-s.stop:
			case <-s.freed:
			case <-timer.C:
				select {
				case <-s.stop:
				case <-s.freed:
				}
			}
		}
	}
}

func (s *sim) claim(plan *Plan) {
	began := time.Now()
	s.mu.Lock()
	d := time.Duration(500+s.rnd.IntN(3000)) * time.Microsecond
	s.mu.Unlock()
	time.Sleep(d)
	s.mu.Lock()
	n := min(plan.Request.Limit, s.backlog)
	s.backlog -= n
	c := store.Claim{Now: time.Now(), Reached: reached(time.Now()), Runs: runs(n)}
	c.Keys.Taken = 0
	s.p.Answered(plan, &c, time.Since(began), s.moment())
	s.waiting += n
	s.p.Wait("q", n)
	s.mu.Unlock()
	s.startWaiting()
	s.mu.Lock()
	waiting := s.waiting
	if waiting > 0 && n > 0 {
		time.AfterFunc(4*Ahead, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			for s.waiting > 0 {
				s.p.GiveBack("q")
				s.waiting--
				s.backlog++
				s.p.Hint("q")
			}
			signal(s.wake)
		})
	}
	s.p.Ended(plan, n, time.Now())
	s.mu.Unlock()
}

// load adds work at random, sometimes by Reserve.
func (s *sim) load(until time.Time, heavy bool) {
	most := 1500
	if heavy {
		most = 40
	}
	for time.Now().Before(until) {
		s.mu.Lock()
		d := time.Duration(s.rnd.IntN(most)) * time.Millisecond
		s.mu.Unlock()
		time.Sleep(d)
		s.mu.Lock()
		if s.rnd.IntN(2) == 0 && s.p.Reserve("q", time.Now()) {
			d := s.duration()
			s.mu.Unlock()
			s.execute(d)
			continue
		}
		if heavy {
			if s.backlog < 200 {
				s.backlog += s.rnd.IntN(20)
			}
		} else {
			s.backlog++
		}
		s.p.Hint("q")
		signal(s.wake)
		s.mu.Unlock()
	}
}

// check checks that no slot is lost or counted twice.
func (w *world) check() {
	for _, s := range w.sims {
		s.mu.Lock()
	}
	w.room.mu.Lock()
	sum := w.room.free
	var detail string
	for _, s := range w.sims {
		l := s.p.slots.loan
		if l == nil {
			continue
		}
		if l.slots != s.p.slots.free+s.p.slots.busy || s.p.slots.free < 0 || s.p.slots.waiting < 0 {
			w.t.Errorf("%s: borrowed %d, free %d, busy %d, waiting %d", s.name, l.slots, s.p.slots.free, s.p.slots.busy,
				s.p.slots.waiting)
		}
		sum += l.slots
		detail += fmt.Sprintf("%s %d ", s.name, l.slots)
	}
	if sum != w.room.slots || w.room.free < 0 {
		w.t.Errorf("%d slots, free %d: %s", sum, w.room.free, detail)
	}
	if len(w.room.holders) > w.room.turns {
		w.t.Errorf("%d holders", len(w.room.holders))
	}
	w.room.mu.Unlock()
	for _, s := range w.sims {
		s.mu.Unlock()
	}
}

func TestRandomRoom(t *testing.T) {
	for seed := range uint64(zzSeeds) {
		for _, slots := range []int{1, 2, 3, 10, 100} {
			t.Run(fmt.Sprint(seed, " ", slots), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { randomRoom(t, slots, seed) })
			})
			if t.Failed() {
				return
			}
		}
	}
}

var zzSeeds = 20

func randomRoom(t *testing.T, slots int, seed uint64) {
	w := &world{room: NewRoom(slots), t: t}
	heavy, light := 1+int(seed%7), 1+int(seed%5)*3
	for i := range heavy + light {
		w.sims = append(w.sims, newSim(w, fmt.Sprint(i), slots, seed*1000+uint64(i)))
	}
	end := time.Now().Add(6 * time.Second)
	var loops, loads sync.WaitGroup
	for i, s := range w.sims {
		loops.Go(s.loop)
		loads.Go(func() { s.load(end, i < heavy) })
	}
	worst := make([]time.Duration, len(w.sims))
	for time.Now().Before(end) && !t.Failed() {
		time.Sleep(7 * time.Millisecond)
		w.check()
		for i, s := range w.sims { // since when is there something and nothing begins?
			s.mu.Lock()
			if s.backlog+s.waiting == 0 {
				s.want = time.Time{}
			} else if s.want.IsZero() || s.lastBeg.After(s.want) {
				s.want = time.Now()
			} else {
				worst[i] = max(worst[i], time.Since(s.want))
			}
			s.mu.Unlock()
		}
	}
	loads.Wait()
	time.Sleep(30 * time.Second) // all backlogs end
	left := 0
	for _, s := range w.sims {
		s.mu.Lock()
		left += s.backlog + s.waiting
		s.mu.Unlock()
	}
	w.check()
	free := 0
	for range 100 { // a claim that polls borrows slots
		if free = w.room.unused(); free == slots {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if left > 0 || free != slots {
		t.Errorf("%d runs are left, %d slots free", left, free)
	}
	for _, s := range w.sims {
		close(s.stop)
	}
	loops.Wait()
	if w.most > slots {
		t.Errorf("%d at once", w.most)
	}
	t.Log("heavy", heavy, worst[:heavy], "light", worst[heavy:])
}

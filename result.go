package kagzi

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/batch"
	"github.com/kagzi/kagzi/notify"
	"github.com/kagzi/kagzi/store"
)

// results lets any number of callers wait for the ends of runs, with one query for all of them. Its
// goroutine lives while somebody waits.
type results struct {
	client   *Client
	patience time.Duration // instead of togetherMost, for tests

	mu      sync.Mutex
	waiting map[uuid.UUID][]waiter
	asked   uint64        // waiters so far
	wake    chan struct{} // look now; nil while nobody waits
}

// A waiter is one call of Result. What was found out before it came is not for it: the run may have been resumed
// since.
type waiter struct {
	number uint64
	ch     chan ending
}

type ending struct {
	store.Ended
	err error
}

// How often the table is asked while nothing tells that a run ended: soon at first, for short runs, then ever
// less often.
const (
	firstLook    = 5 * time.Millisecond
	lastLook     = 250 * time.Millisecond
	lastLookHint = 2 * time.Second        // with a listener
	listenAfter  = 300 * time.Millisecond // of waiting
)

// wait returns the end of the run.
func (r *results) wait(ctx context.Context, id uuid.UUID) (store.Ended, error) {
	if err := r.ready(ctx); err != nil {
		return store.Ended{}, err
	}
	ch := make(chan ending, 1)
	r.mu.Lock()
	if r.waiting == nil {
		r.waiting = map[uuid.UUID][]waiter{}
	}
	r.asked++
	r.waiting[id] = append(r.waiting[id], waiter{r.asked, ch})
	if r.wake == nil {
		r.wake = make(chan struct{}, 1)
		go r.run(r.wake)
	}
	signal(r.wake)
	r.mu.Unlock()
	select {
	case e := <-ch:
		return e.Ended, e.err
	case <-ctx.Done():
		r.leave(id, ch)
		return store.Ended{}, ctx.Err()
	}
}

// ready checks the schema, waiting for a database that is away.
func (r *results) ready(ctx context.Context) error {
	for {
		err := r.client.checkSchema(ctx, nil)
		if err == nil || ctx.Err() != nil || !store.Away(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(databasePause):
		}
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (r *results) leave(id uuid.UUID, ch chan ending) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting[id] = slices.DeleteFunc(r.waiting[id], func(w waiter) bool { return w.ch == ch })
	if len(r.waiting[id]) == 0 {
		delete(r.waiting, id)
	}
	if len(r.waiting) == 0 && r.wake != nil {
		signal(r.wake)
	}
}

// last returns the number of the last waiter so far.
func (r *results) last() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked
}

// deliver gives those who wait for e's run its end, up to the last waiter when it began to be found out.
func (r *results) deliver(e ending, last uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var later []waiter
	for _, w := range r.waiting[e.RunID] {
		if w.number <= last {
			w.ch <- e
		} else {
			later = append(later, w)
		}
	}
	if later != nil {
		r.waiting[e.RunID] = later
	} else {
		delete(r.waiting, e.RunID)
	}
	if len(r.waiting) == 0 && r.wake != nil {
		signal(r.wake)
	}
}

// look asks at once if somebody waits for one of ids; nil means any.
func (r *results) look(ids []uuid.UUID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wake == nil {
		return
	}
	for _, id := range ids {
		if r.waiting[id] != nil {
			signal(r.wake)
			return
		}
	}
	if ids == nil {
		signal(r.wake)
	}
}

// pending returns the runs that are waited for. If there are none the caller, the goroutine, must end.
func (r *results) pending() []uuid.UUID {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) == 0 {
		r.wake = nil
		return nil
	}
	ids := make([]uuid.UUID, 0, len(r.waiting))
	for id := range r.waiting {
		ids = append(ids, id)
	}
	return ids
}

// run looks for ends until nobody waits.
func (r *results) run(wake chan struct{}) {
	begun, pause := time.Now(), firstLook
	look := newResultLook(r)
	defer look.alone.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var release func()
	defer func() {
		if release != nil {
			release()
		}
	}()
	for {
		ids := r.pending()
		if ids == nil {
			return
		}
		look.ask(ids)
		longest := lastLook
		if release != nil && r.client.hub.listening() {
			longest = lastLookHint
		}
		// A query that takes long is asked less often.
		pause = min(2*pause, longest)
		timer.Reset(max(pause, 10*look.took))
		if release == nil && time.Since(begun) > listenAfter {
			release = r.client.hub.acquire()
		}
		select {
		case <-wake:
			pause = firstLook
		case <-timer.C:
		}
	}
}

const (
	// mostAsked is how many runs one query is about at the most: it may bring the result of each.
	mostAsked = 1000

	// togetherMost is how long a query about more than one run may take. One of them may be too much by itself, and those who
	// wait for the others wait for it as often as they are halved.
	togetherMost = 2 * time.Second

	// refusalLasts is for how long the database must have refused to say before those who wait are told: a migration, or
	// somebody's lock, passes.
	refusalLasts = 2 * time.Second
)

// A resultLook asks for ends, again and again.
type resultLook struct {
	*results
	outage outage
	most   int                       // runs of the next query
	since  time.Time                 // when the database began to refuse to answer; zero if the last query was answered
	took   time.Duration             // the longest query of the last look, but for those that failed because of one run
	alone  *batch.Batcher[uuid.UUID] // asks for the lone ones

	lonely sync.Mutex
	lones  map[uuid.UUID]*lone
}

// A lone is a run whose end could not be read, although the ends of others could. It is asked for by itself from then on,
// beside the others, so that these need not wait for it.
type lone struct {
	since time.Time // when that was found
	times int       // it failed
	next  time.Time // when it is asked for again
	asked bool      // now
}

func newResultLook(r *results) *resultLook {
	l := &resultLook{results: r, most: mostAsked, lones: map[uuid.UUID]*lone{}}
	l.outage.after = r.client.hub.retry
	l.outage.name(r.client.cfg.Logger.With("namespace", r.client.cfg.Namespace))
	l.alone = batch.New(batch.Config[uuid.UUID]{MaxItems: 1, Flush: l.askAlone})
	return l
}

// ask gives those who wait for ids the ends that are there, or the error that they need not wait with any longer.
func (l *resultLook) ask(ids []uuid.UUID) {
	l.took = 0
	for ids = l.together(ids); len(ids) > 0; {
		n, last, begun := min(len(ids), l.most), l.last(), time.Now()
		err := store.Apart(ids[:n], l.askTogether, l.failedAlone)
		switch {
		case err == nil:
			l.outage.end()
			l.since, l.most = time.Time{}, min(2*l.most, mostAsked)
			ids = ids[n:]
		case store.Classify(err) == store.ClassLate && !store.MayBeOfOne(err): // no answer came: n may be too many for one query
			l.outage.begin(err)
			l.most = max(1, n/2)
			if n == 1 {
				l.failedAlone(ids[0], err)
				ids = ids[1:]
			}
		default:
			l.took = max(l.took, time.Since(begun))
			l.failed(ids, last, err)
			return
		}
	}
}

// together returns those of ids that are asked for together, and has the lone ones asked for whose pause is over.
func (l *resultLook) together(ids []uuid.UUID) []uuid.UUID {
	l.lonely.Lock()
	defer l.lonely.Unlock()
	if len(l.lones) == 0 {
		return ids
	}
	waiting := map[uuid.UUID]*lone{}
	ids = slices.DeleteFunc(ids, func(id uuid.UUID) bool {
		x := l.lones[id]
		if x == nil {
			return false
		}
		waiting[id] = x
		if !x.asked && !time.Now().Before(x.next) {
			x.asked = true
			l.alone.Add(id)
		}
		return true
	})
	l.lones = waiting
	return ids
}

func (l *resultLook) askTogether(ids []uuid.UUID) error {
	begun := time.Now()
	err := l.fetch(ids, cmp.Or(l.patience, togetherMost))
	if err == nil {
		l.took = max(l.took, time.Since(begun))
	}
	return err
}

func (l *resultLook) askAlone(ids []uuid.UUID) {
	for _, id := range ids {
		if err := l.fetch(ids, 0); err != nil {
			l.failedAlone(id, err)
			continue
		}
		l.lonely.Lock()
		delete(l.lones, id)
		l.lonely.Unlock()
	}
}

// fetch gives those who wait for ids the ends that are there.
func (l *resultLook) fetch(ids []uuid.UUID, most time.Duration) error {
	last := l.last()
	ended, missing, err := l.client.store.Ended(context.Background(), ids, most)
	if err != nil {
		return err
	}
	for _, e := range ended {
		l.deliver(ending{Ended: e}, last)
	}
	for _, id := range missing {
		l.deliver(ending{Ended: store.Ended{RunID: id}, err: ErrRunNotFound}, last)
	}
	return nil
}

// failedAlone has the run asked for by itself after a pause. Whoever waits for it is told the error if it lasts, unless it
// says that no answer came in time.
func (l *resultLook) failedAlone(id uuid.UUID, err error) {
	last := l.last()
	l.lonely.Lock()
	x := l.lones[id]
	if x == nil {
		x = &lone{since: time.Now()}
		l.lones[id] = x
	}
	x.next, x.asked = time.Now().Add(troublePause(x.times)), false
	x.times++
	lasts := time.Since(x.since) >= refusalLasts
	l.lonely.Unlock()
	if store.Closed(err) || lasts && (!store.Away(err) || store.Answered(err)) {
		l.tell([]uuid.UUID{id}, last, err)
	}
}

// failed goes by what err says of a query that failed for no run of its own: the same may succeed later, or who waits is
// told.
func (l *resultLook) failed(ids []uuid.UUID, last uint64, err error) {
	told := store.Closed(err)
	switch {
	case told:
	case store.Away(err):
		l.outage.begin(err)
	default:
		if l.since.IsZero() {
			l.since = time.Now()
		}
		told = time.Since(l.since) >= refusalLasts
	}
	if told {
		l.tell(ids, last, err)
	}
}

// tell gives those who wait for ids the error.
func (l *resultLook) tell(ids []uuid.UUID, last uint64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), refusalLasts)
	defer cancel()
	err = l.client.store.ExplainRights(ctx, err)
	for _, id := range ids {
		l.deliver(ending{Ended: store.Ended{RunID: id}, err: err}, last)
	}
}

// hub is the process's listener: one connection, open while somebody in the process waits for hints.
type hub struct {
	client  *Client
	backoff time.Duration // of the listener; zero but in tests

	mu       sync.Mutex
	users    int
	listener *notify.Listener
	stop     context.CancelFunc
	done     chan struct{}
}

// acquire starts the listener if it is not running. The last release stops it and returns when it has ended.
func (h *hub) acquire() (release func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.users++; h.users == 1 {
		pool := h.client.store.Pool()
		h.listener = notify.NewListener(notify.ListenerConfig{
			Connect: func(ctx context.Context) (*pgx.Conn, error) { return connect(ctx, pool) },
			Probe:   h.client.publisher.Probe,

			MinBackoff: h.backoff, MaxBackoff: h.backoff,
			Logger: h.client.cfg.Logger.With("namespace", h.client.cfg.Namespace),
		})
		cancelRuns := h.listener.OnRuns(h.client.cfg.Namespace, h.client.moved)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		listener := h.listener
		h.stop, h.done = cancel, done
		go func() {
			defer close(done)
			defer cancelRuns()
			_ = listener.Run(ctx) // ends only with ctx
		}()
	}
	return sync.OnceFunc(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.users--; h.users == 0 {
			h.stop()
			<-h.done
			h.listener = nil
		}
	})
}

// connect opens a connection beside the pool, as the pool would open one but for what change changes.
func connect(ctx context.Context, pool *pgxpool.Pool, change ...func(*pgx.ConnConfig)) (*pgx.Conn, error) {
	cfg := pool.Config()
	for _, f := range change {
		f(cfg.ConnConfig)
	}
	if cfg.BeforeConnect != nil { // sets a password that changes, for one
		if err := cfg.BeforeConnect(ctx, cfg.ConnConfig); err != nil {
			return nil, err
		}
	}
	conn, err := pgx.ConnectConfig(ctx, cfg.ConnConfig)
	if err == nil && cfg.AfterConnect != nil { // sets a role, for one
		if err = cfg.AfterConnect(ctx, conn); err != nil {
			_ = conn.Close(ctx)
		}
	}
	return conn, err
}

// onWork subscribes to hints about queue. Its caller has acquired the hub.
func (h *hub) onWork(queue string, wake func()) (cancel func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.listener.OnWork(h.client.cfg.Namespace, queue, wake)
}

// retry lets the listener connect at once, if it is about to: the database answers again.
func (h *hub) retry() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.listener != nil {
		h.listener.Retry()
	}
}

func (h *hub) listening() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.listener != nil && h.listener.Listening()
}

// moved is the hint, the listener's or our own, that runs moved; nil means any of them.
func (c *Client) moved(ids []uuid.UUID) {
	c.tell(ids)
	c.results.look(ids)
}

// tell is moved without those who wait for results: they have them.
func (c *Client) tell(ids []uuid.UUID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.sessions {
		s.look(ids)
	}
	for k := range c.coordinators {
		k.look(ids)
	}
}

package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/campaign"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

// named returns events of the topic with these IDs.
func named(topic string, ids ...string) (events []*NewEvent) {
	for _, id := range ids {
		events = append(events, &NewEvent{
			Topic: topic, ID: id, Named: true, Title: "title of " + id,
			Payload: []byte(`"` + id + `"`),
		})
	}
	return events
}

func publishes(t *testing.T, s *Store, events ...*NewEvent) {
	t.Helper()
	publishIn(t, s, nil, events...)
}

func publishIn(t *testing.T, s *Store, tx pgx.Tx, events ...*NewEvent) {
	t.Helper()
	if _, err := s.Topics.Publish(t.Context(), tx, events); err != nil {
		t.Fatal(err)
	}
}

// readOn returns the IDs of the events after a position, and that of the last one.
func readOn(t *testing.T, s *Store, topic string, after int64) (ids []string, last int64) {
	t.Helper()
	events, err := s.Topics.ReadEvents(t.Context(), topic, after, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		ids, after = append(ids, e.ID), e.Position
	}
	return ids, after
}

func wantEvents(t *testing.T, s *Store, topic string, want ...string) {
	t.Helper()
	if got, _ := readOn(t, s, topic, 0); !slices.Equal(got, want) {
		t.Errorf("topic %s has %v, want %v", topic, got, want)
	}
}

func TestPublish(t *testing.T) {
	t.Parallel()
	s := open(t)
	publishes(t, s, named("a", "3", "1", "2")...)
	publishes(t, s, append(named("a", "1", "4"), named("b", "1")...)...)
	wantEvents(t, s, "a", "3", "1", "2", "4")
	wantEvents(t, s, "b", "1")
	events, err := s.Topics.ReadEvents(t.Context(), "a", 0, 1)
	if err != nil || len(events) != 1 || events[0].Title != "title of 3" || string(events[0].Payload) != `"3"` ||
		events[0].PublishedAt.IsZero() {
		t.Errorf("read %+v, %v", events, err)
	}
	publishes(t, s, &NewEvent{Topic: "a", ID: "1", Named: true, Payload: []byte("another")})
	wantEvents(t, s, "a", "3", "1", "2", "4")
	other := New(s.pool, "other")
	wantEvents(t, other, "a")
	publishes(t, other, named("a", "1")...)
	wantEvents(t, other, "a", "1")
}

// One call with many events, and with large ones, takes several statements.
func TestPublishMany(t *testing.T) {
	t.Parallel()
	s := open(t)
	var ids []string
	for i := range mostPublished + 10 {
		ids = append(ids, strconv.Itoa(i))
	}
	publishes(t, s, named("a", ids...)...)
	var got []string
	for last := int64(0); ; {
		some, next := readOn(t, s, "a", last)
		if len(some) == 0 {
			break
		}
		got, last = append(got, some...), next
	}
	if !slices.Equal(got, ids) {
		t.Errorf("read %d events, in another order or others", len(got))
	}
	large := make([]byte, mostPublishedBytes/2+1)
	var some []*NewEvent
	for i := range 3 {
		some = append(some, &NewEvent{Topic: "large", ID: strconv.Itoa(i), Payload: large})
	}
	if n := len(eventChunks(some)); n != 3 {
		t.Errorf("%d chunks", n)
	}
	publishes(t, s, some...)
	if events, err := s.Topics.ReadEvents(t.Context(), "large", 0, 10); err != nil || len(events) != 1 ||
		len(events[0].Payload) != len(large) {
		t.Errorf("read %d large events at once, %v", len(events), err)
	}
}

// An event whose transaction commits late is read in its place: a reader does not get past it before. One that was
// rolled back holds up no reader.
func TestReadersWaitForOlderTransactions(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"COMMIT", "ROLLBACK"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			publishes(t, s, named("a", "first")...)
			tx := begin(t, s)
			publishIn(t, s, tx, named("a", "late")...)
			publishes(t, s, named("a", "later")...)
			wantEvents(t, s, "a", "first")
			_, at := readOn(t, s, "a", 0)
			exec(t, tx, end)
			want := []string{"late", "later"}
			if end == "ROLLBACK" {
				want = want[1:]
			}
			if got, _ := readOn(t, s, "a", at); !slices.Equal(got, want) {
				t.Errorf("read %v, want %v", got, want)
			}
		})
	}
}

// The first position of all is waited for, too.
func TestReadersWaitForTheFirstTransaction(t *testing.T) {
	t.Parallel()
	s := open(t)
	exec(t, s.pool, `ALTER SEQUENCE kagzi.event_positions RESTART`)
	tx := begin(t, s)
	publishIn(t, s, tx, named("a", "first")...)
	if n := one[int](t, s.pool, settledEvents, s.namespace, "a"); n != 0 {
		t.Errorf("settled up to %d, want 0", n)
	}
	publishes(t, s, named("a", "second")...)
	wantEvents(t, s, "a")
	commit(t, tx)
	wantEvents(t, s, "a", "first", "second")
}

// A position that is drawn is above the last one that was read before: the protocol of publishers and readers rests on
// it.
func TestPositionsGrow(t *testing.T) {
	t.Parallel()
	s := open(t, dbtest.MaxConns(6))
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			for range 30 {
				n, err := pg.AskOne[int](t.Context(), s.pool, `
WITH x AS MATERIALIZED (SELECT g FROM generate_series(1, 20000) g),
y AS MATERIALIZED (SELECT CASE WHEN g > 0 THEN `+lastPosition+` END AS last,
	nextval('kagzi.event_positions') AS drawn FROM x)
SELECT count(*) FROM y WHERE y.drawn <= y.last`)
				if err != nil || n != 0 {
					t.Errorf("%d positions are not above the last one, %v", n, err)
					return
				}
			}
		})
	}
	all.Wait()
}

// A publisher that began after the reader had looked at the last position does not hold it up.
func TestLaterPublishersHoldUpNobody(t *testing.T) {
	t.Parallel()
	s := open(t)
	publishes(t, s, named("a", "1", "2")...)
	last := one[int](t, s.pool, `SELECT `+lastPosition)
	for _, ahead := range []int{1, 1000} {
		tx := begin(t, s)
		exec(t, tx, `SELECT pg_advisory_xact_lock_shared(`+topicLock+
			`$2), ((($3::bigint + 2147483648) & 4294967295) - 2147483648)::int)`, s.namespace, "a", last+ahead)
		wantEvents(t, s, "a", "1", "2")
		exec(t, tx, "ROLLBACK")
	}
}

// A savepoint that is rolled back lets no reader past what the transaction has published.
func TestReadersWaitForPartsOfTransactions(t *testing.T) {
	t.Parallel()
	s := open(t)
	tx := begin(t, s)
	publishIn(t, s, tx, named("a", "first")...)
	exec(t, tx, "SAVEPOINT one")
	publishIn(t, s, tx, named("a", "undone")...)
	exec(t, tx, "ROLLBACK TO one")
	publishes(t, s, named("a", "other")...)
	publishIn(t, s, tx, named("a", "last")...)
	wantEvents(t, s, "a")
	commit(t, tx)
	wantEvents(t, s, "a", "first", "other", "last")

	tx = begin(t, s)
	exec(t, tx, "SAVEPOINT one")
	publishIn(t, s, tx, named("b", "undone")...)
	publishes(t, s, named("b", "other")...)
	wantEvents(t, s, "b")
	exec(t, tx, "ROLLBACK TO one")
	wantEvents(t, s, "b", "other")
}

// A standby sees no locks of those who publish, so a reader there could miss events.
func TestEventsAreNotReadFromAStandby(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	exec(t, db.Pool, `CREATE SCHEMA standby`)
	exec(t, db.Pool, `CREATE FUNCTION standby.pg_is_in_recovery() RETURNS bool LANGUAGE sql AS 'SELECT true'`)
	publishes(t, New(db.Pool, "test"), named("a", "x")...)
	s := New(poolWith(t, db.DSN, func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["search_path"] = "standby, pg_catalog"
	}), "test")
	if events, err := s.Topics.ReadEvents(t.Context(), "a", 0, 10); !errors.Is(err, errStandby) || len(events) > 0 {
		t.Errorf("read %v, %v", events, err)
	}
}

// While publishers commit in any order, readers that go on from where they were see each event once.
func TestReadersSeeEachEventOnce(t *testing.T) {
	t.Parallel()
	const publishers, each = 8, 40
	s := open(t, dbtest.MaxConns(publishers+4))
	var all sync.WaitGroup
	for p := range publishers {
		all.Go(func() {
			for i := range each {
				id := fmt.Sprintf("%d/%d", p, i)
				if i%2 == 0 {
					if _, err := s.Topics.Publish(t.Context(), nil, named("a", id)); err != nil {
						t.Error(err)
					}
					continue
				}
				err := pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
					_, err := s.Topics.Publish(t.Context(), tx, named("a", id))
					if i%4 == 1 {
						_, _ = tx.Exec(t.Context(), `SELECT count(*) FROM generate_series(1, 30000)`) // others pass
					}
					return err
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	ended := make(chan struct{})
	go func() { all.Wait(); close(ended) }()
	seen := map[string]int{}
	var last int64
	for over := false; !over; {
		select {
		case <-ended:
			over = true // read once more
		default:
		}
		for {
			ids, next := readOn(t, s, "a", last)
			for _, id := range ids {
				seen[id]++
			}
			if last = next; len(ids) == 0 {
				break
			}
		}
	}
	if len(seen) != publishers*each {
		t.Errorf("read %d events of %d", len(seen), publishers*each)
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("event %s was read %d times", id, n)
		}
	}
}

func TestPublishInATransaction(t *testing.T) {
	t.Parallel()

	t.Run("CommitsWithIt", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		for _, end := range []string{"ROLLBACK", "COMMIT"} {
			tx := begin(t, s)
			publishIn(t, s, tx, named("a", end)...)
			exec(t, tx, end)
		}
		wantEvents(t, s, "a", "COMMIT")
	})

	t.Run("AnotherWaitsForTheSameID", func(t *testing.T) {
		t.Parallel()
		for _, end := range []string{"COMMIT", "ROLLBACK"} {
			s := open(t)
			tx := begin(t, s)
			publishIn(t, s, tx, named("a", "x")...)
			meetsLock(t, s, func(ctx context.Context) {
				if _, err := s.Topics.Publish(ctx, nil, named("a", "x")); err != nil {
					t.Errorf("%s: %v", end, err)
				}
			}, func() { exec(t, tx, end) })
			wantEvents(t, s, "a", "x")
		}
	})

	t.Run("AnotherGivesUp", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		tx := begin(t, s)
		publishIn(t, s, tx, named("a", "x")...)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		meetsLock(t, s, func(context.Context) {
			if _, err := s.Topics.Publish(ctx, nil, named("a", "x")); !errors.As(err, new(*HeldError)) ||
				!errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
		}, cancel)
	})

	t.Run("WithALockTimeout", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		first, second := begin(t, s), begin(t, s)
		publishIn(t, s, first, named("a", "x")...)
		limitWaits(t, second)
		if _, err := s.Topics.Publish(t.Context(), second, named("a", "before", "x")); !errors.As(err,
			new(*HeldError)) {
			t.Errorf("got %v", err)
		}
		publishIn(t, s, second, named("a", "y")...)
		exec(t, second, "COMMIT")
		exec(t, first, "ROLLBACK")
		wantEvents(t, s, "a", "y")
	})

	t.Run("RefusesStricterIsolation", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		tx, err := s.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
		if _, err := s.Topics.Publish(t.Context(), tx, named("a", "x")); err == nil {
			t.Error("a transaction that does not see what others commit may publish")
		}
	})
}

// A call whose answer is lost is repeated, and stores the events once, whether the application has named them or not.
func TestPublishWithALostAnswer(t *testing.T) {
	t.Parallel()
	for _, lose := range []struct {
		what string
		is   func(int, string) bool
	}{{"the insert's", pgproxy.Contains("INSERT INTO kagzi.events")}, {"the commit's", pgproxy.Contains("COMMIT")}} {
		t.Run(lose.what, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Database(t)
			proxy := pgproxy.Start(t, db.DSN)
			s := New(poolWith(t, proxy.DSN(), nil), "test")
			publishes(t, s, named("a", "before")...)
			for i := range 3 {
				proxy.DropAck(lose.is)
				publishes(t, s, &NewEvent{Topic: "a", ID: strconv.Itoa(i), Named: i == 0})
			}
			wantEvents(t, s, "a", "before", "0", "1", "2")
		})
	}
}

// An event without a name, whose answer is lost, is stored once even if another partition is opened before the
// repetition.
func TestPublishAgainIntoAnotherPartition(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	proxy := pgproxy.Start(t, db.DSN)
	s, direct := New(poolWith(t, proxy.DSN(), nil), "test"), New(db.Pool, "test")
	rotateEvents(t, direct)
	ageEvents(t, direct, 11)
	insert := pgproxy.Contains("INSERT INTO kagzi.events ")
	drop := proxy.DropAck(insert)
	proxy.DropAck(func(n int, sql string) bool {
		select {
		case <-drop.Done():
			if insert(n, sql) {
				rotateEvents(t, direct)
			}
		default:
		}
		return false
	})
	publishes(t, s, &NewEvent{Topic: "a", ID: "made"})
	if n := one[int](t, db.Pool, `SELECT count(*) FROM kagzi.event_parts`); n != 2 {
		t.Errorf("INVALID: %d partitions are in use", n)
	}
	wantEvents(t, direct, "a", "made")
}

// Publishers of the same IDs in different orders wait for each other, and none in a circle.
func TestPublishersInDifferentOrders(t *testing.T) {
	t.Parallel()
	const n, publishers = 200, 6
	rounds := campaign.Size(2, 5)
	s := New(poolWith(t, dbtest.Database(t).DSN, func(c *pgxpool.Config) {
		c.MaxConns, c.ConnConfig.RuntimeParams["deadlock_timeout"] = publishers+2, "1"
	}), "test")
	for round := range rounds {
		var wg sync.WaitGroup
		for range publishers {
			var ids []string
			for i := range n {
				ids = append(ids, fmt.Sprintf("%d-%d", round, i))
			}
			rand.Shuffle(n, func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
			wg.Go(func() {
				if _, err := s.Topics.Publish(t.Context(), nil, named("a", ids...)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.events`); n != rounds*200 {
		t.Errorf("%d events, want %d", n, rounds*200)
	}
	wantNoDeadlocks(t, s)
}

// ---- partitions ----

func rotateEvents(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Topics.RotateEvents(t.Context(), 60*time.Hour, 60*time.Hour); err != nil {
		t.Fatal(err)
	}
}

// ageEvents makes everything older.
func ageEvents(t *testing.T, s *Store, hours int) {
	t.Helper()
	exec(t, s.pool, `UPDATE kagzi.event_parts SET opened_at = opened_at - $1 * interval '1 hour',
		closed_at = closed_at - $1 * interval '1 hour'`, hours)
}

func TestRotateEvents(t *testing.T) {
	t.Parallel()
	s := open(t)
	parts := func() int { return one[int](t, s.pool, `SELECT count(DISTINCT part) FROM kagzi.events`) }
	for day := range 30 {
		publishes(t, s, named("a", strconv.Itoa(day))...)
		rotateEvents(t, s)
		if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.event_parts WHERE closed_at IS NULL`); n != 1 {
			t.Fatalf("%d partitions are open", n)
		}
		if n := parts(); n != min(day+1, 7) && n != min(day+1, 8) {
			t.Errorf("day %d: events in %d partitions", day, n)
		}
		ageEvents(t, s, 11)
		rotateEvents(t, s)
	}
	got, _ := readOn(t, s, "a", 0)
	if n := len(got); n == 0 || n < 5 || n > 7 || got[n-1] != "29" || got[0] != strconv.Itoa(30-n) {
		t.Errorf("the topic has %v, want the events of the last 60 hours, one each 11 hours", got)
	}
	publishes(t, s, named("a", got[0])...) // another partition has it
	wantEvents(t, s, "a", got...)
	publishes(t, s, named("a", "0")...) // it was removed
	wantEvents(t, s, "a", append(got, "0")...)
}

// The namespace that keeps its events longest decides, for as long as its coordinators say so.
func TestRotateEventsOfSeveralNamespaces(t *testing.T) {
	t.Parallel()
	s := open(t)
	if err := New(s.pool, "other").Topics.RotateEvents(t.Context(), 600*time.Hour, 600*time.Hour); err != nil {
		t.Fatal(err)
	}
	publishes(t, s, named("a", "x")...)
	rotateEvents(t, s)
	ageEvents(t, s, 101)
	rotateEvents(t, s)
	ageEvents(t, s, 400)
	rotateEvents(t, s)
	wantEvents(t, s, "a", "x")
	exec(t, s.pool, `UPDATE kagzi.event_keepers SET told_at = now() - interval '31 days' WHERE keeper = 'other'`)
	rotateEvents(t, s)
	wantEvents(t, s, "a")
}

// A partition is not closed while a transaction publishes: an ID could come into both.
func TestRotateEventsWaitsForPublishers(t *testing.T) {
	t.Parallel()
	s := open(t)
	rotateEvents(t, s)
	ageEvents(t, s, 11)
	tx := begin(t, s)
	publishIn(t, s, tx, named("a", "x")...)
	if err := s.Topics.RotateEvents(t.Context(), 60*time.Hour, 60*time.Hour); !pg.Locked(err) {
		t.Errorf("got %v", err)
	}
	commit(t, tx)
	rotateEvents(t, s)
	publishes(t, s, named("a", "x")...)
	publishes(t, s, named("a", "y")...)
	wantEvents(t, s, "a", "x", "y")
	if n := one[int](t, s.pool, `SELECT count(DISTINCT part) FROM kagzi.events`); n != 2 {
		t.Errorf("events in %d partitions", n)
	}
}

// Publishers and rotations race: each ID is stored once.
func TestPublishersRaceWithRotations(t *testing.T) {
	t.Parallel()
	const publishers, ids = 4, 150
	s := open(t, dbtest.MaxConns(publishers+4))
	var all sync.WaitGroup
	for range publishers {
		all.Go(func() {
			for i := range ids {
				if _, err := s.Topics.Publish(t.Context(), nil, named("a", strconv.Itoa(i))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	ended := make(chan struct{})
	go func() { all.Wait(); close(ended) }()
	rotations := 0
	for over := false; !over; {
		select {
		case <-ended:
			over = true
		default:
			exec(t, s.pool, `UPDATE kagzi.event_parts SET opened_at = opened_at - interval '11 hours'
				WHERE closed_at IS NULL`)
			if err := s.Topics.RotateEvents(t.Context(), 60*time.Hour, 60*time.Hour); err == nil {
				rotations++
			} else if !pg.Locked(err) {
				t.Error(err)
			}
		}
	}
	if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.events`); n != ids {
		t.Errorf("%d events after %d rotations, want %d", n, rotations, ids)
	}
}

// A rotation that is to empty one partition and to open another gets both done while others publish.
func TestRotateEventsBesidePublishers(t *testing.T) {
	t.Parallel()
	const publishers = 4
	s := open(t, dbtest.MaxConns(publishers+4))
	rotateEvents(t, s)
	publishes(t, s, named("a", "old")...)
	ageEvents(t, s, 11)
	rotateEvents(t, s)
	ageEvents(t, s, 61)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for p := range publishers {
		all.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if _, err := s.Topics.Publish(context.Background(), nil,
					named("b", fmt.Sprintf("%d/%d", p, i))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	await.True(t, "somebody has published", func() bool {
		return one[bool](t, s.pool, `SELECT EXISTS (SELECT 1 FROM kagzi.events WHERE topic = 'b')`)
	})
	await.True(t, "both are done", func() bool {
		if err := s.Topics.RotateEvents(t.Context(), 60*time.Hour, 60*time.Hour); err != nil && !pg.Locked(err) {
			t.Error(err)
		}
		return one[string](t, s.pool, `SELECT string_agg(part || ' ' || (closed_at IS NULL), ', ' ORDER BY part)
			FROM kagzi.event_parts`) == "1 false, 2 true"
	})
	wantEvents(t, s, "a")
}

// While a reader has a long transaction no partition is emptied, but another one is opened.
func TestRotateEventsBesideALongReader(t *testing.T) {
	t.Parallel()
	s := open(t)
	rotateEvents(t, s)
	publishes(t, s, named("a", "old")...)
	ageEvents(t, s, 11)
	rotateEvents(t, s)
	ageEvents(t, s, 61)
	tx := begin(t, s)
	exec(t, tx, `SELECT FROM kagzi.events`)
	if err := s.Topics.RotateEvents(t.Context(), 60*time.Hour, 60*time.Hour); !pg.Locked(err) {
		t.Errorf("got %v", err)
	}
	if got := one[int](t, s.pool, `SELECT part FROM kagzi.event_parts WHERE closed_at IS NULL`); got != 2 {
		t.Errorf("partition %d is open, want the next", got)
	}
	commit(t, tx)
	rotateEvents(t, s)
	wantEvents(t, s, "a")
}

// A user who may not empty a partition is told so. Others are opened.
func TestRotateEventsWithoutTheRight(t *testing.T) {
	t.Parallel()
	s := open(t, dbtest.AsOwner())
	rotateEvents(t, s)
	ageEvents(t, s, 11)
	rotateEvents(t, s)
	ageEvents(t, s, 61)
	role := "rotates_" + strconv.FormatUint(rand.Uint64(), 36)
	exec(t, s.pool, `CREATE ROLE `+role+` LOGIN`)
	exec(t, s.pool, `GRANT USAGE ON SCHEMA kagzi TO `+role)
	exec(t, s.pool, `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA kagzi TO `+role)
	t.Cleanup(func() {
		_, _ = s.pool.Exec(context.Background(), `DROP OWNED BY `+role+`; DROP ROLE `+role,
			pgx.QueryExecModeSimpleProtocol)
	})
	poor := New(poolWith(t, s.pool.Config().ConnString(), func(c *pgxpool.Config) {
		c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, `SET ROLE `+role)
			return err
		}
	}), "test")
	if err := poor.Topics.RotateEvents(t.Context(), 60*time.Hour, 60*time.Hour); pg.Classify(err) != pg.ClassForbidden {
		t.Errorf("got %v", err)
	}
	if got := one[int](t, s.pool, `SELECT part FROM kagzi.event_parts WHERE closed_at IS NULL`); got != 2 {
		t.Errorf("partition %d is open, want the next", got)
	}
}

package claims

import (
	"fmt"
	"testing"
	"time"
)

// registeredQueues returns queues with these shares, from which a claim is due.
func registeredQueues(shares ...int) (l queueList) {
	for i, share := range shares {
		l = append(l, &queue{
			name: fmt.Sprint(i), share: share, registered: true, most: MostClaimed,
		})
	}
	return l
}

// serve is a claim that takes n runs of q.
func serve(l queueList, q *queue, n int, last *float64) {
	due, _ := l.due(start, poll)
	*last = l.claimed(q, n, *last, due)
}

// fill gives n slots to runs of queues that have backlogs, in claims of at most most runs, and returns how many runs of
// each queue were claimed.
func fill(l queueList, n, most int, last *float64) []int {
	claimed := make([]int, len(l))
	for n > 0 {
		q, some := l.choose(min(n, most))
		serve(l, q, some, last)
		q.taken += some
		n -= some
		for i := range l {
			if l[i] == q {
				claimed[i] += some
			}
		}
	}
	return claimed
}

// Queues with backlogs hold slots by their shares, whether runs are long or short and slots many or few.
func TestSharesOfQueues(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		shares      []int
		slots, most int
	}{
		{[]int{1}, 100, 100},
		{[]int{1, 3}, 100, 100},
		{[]int{1, 3}, 100, 1},
		{[]int{3, 1}, 1, 1},
		{[]int{1, 1, 1}, 2, 2},
		{[]int{5, 2, 1}, 7, 3},
		{[]int{1, 1000}, 20, 20},
		{[]int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 100, 100},
		{[]int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 3, 3},
	} {
		for _, short := range []bool{false, true} {
			l := registeredQueues(tt.shares...)
			sum, total, last := 0, make([]int, len(l)), 0.0
			for _, share := range tt.shares {
				sum += share
			}
			free, rounds := tt.slots, 200*sum
			if tt.slots >= sum {
				rounds = 1000
			}
			for round := range rounds {
				for i, n := range fill(l, free, tt.most, &last) {
					total[i] += n
				}
				free = 0
				if short { // all runs end before the next claim
					for _, q := range l {
						free, q.taken = free+q.taken, 0
					}
				} else { // one run ends, of one queue after the other
					for i := range l {
						if q := l[(round+i)%len(l)]; q.taken > 0 {
							q.taken--
							free++
							break
						}
					}
				}
			}
			all := 0
			for _, n := range total {
				all += n
			}
			for i, q := range l {
				want := float64(q.share) / float64(sum)
				if !short { // the slots held now
					if got := float64(q.taken) + 1; got < want*float64(tt.slots)-1 || got > want*float64(tt.slots)+3 {
						t.Errorf("%+v, long runs: queue %d holds %d of %d slots", tt, i, q.taken, tt.slots)
					}
					continue
				}
				if got := float64(total[i]) / float64(all); got < 0.9*want || got > 1.1*want {
					t.Errorf("%+v, short runs: queue %d has got %.4f of the runs, want %.4f", tt, i, got, want)
				}
			}
		}
	}
}

// A queue takes the slots that others do not need. Once they do, it gets no freed slot until they have their shares.
// Nothing is made up for the time in which a queue had no runs.
func TestSlotsThatOthersDoNotNeed(t *testing.T) {
	t.Parallel()
	l, last := registeredQueues(1, 1), 0.0
	busy, idle := l[0], l[1]
	for range 50 {
		busy.taken = 0
		fill(l[:1], 100, 100, &last)
	}
	if busy.taken != 100 {
		t.Fatalf("a queue alone holds %d of 100 slots", busy.taken)
	}
	for i := range 50 {
		busy.taken--
		if fill(l, 1, 1, &last); idle.taken != i+1 {
			t.Fatalf("the other queue holds %d slots after %d were freed", idle.taken, i+1)
		}
	}
	for range 20 {
		busy.taken--
		idle.taken--
		fill(l, 2, 2, &last)
	}
	if busy.taken != 50 || idle.taken != 50 {
		t.Errorf("the queues hold %d and %d slots, want 50 each", busy.taken, idle.taken)
	}
	l, last = registeredQueues(1, 1), 0
	for range 50 {
		fill(l[:1], 1, 1, &last)
		l[0].taken = 0
	}
	total := [2]int{}
	for range 20 {
		for i, n := range fill(l, 1, 1, &last) {
			total[i] += n
			l[i].taken = 0
		}
	}
	if total[0] < 9 || total[1] < 9 {
		t.Errorf("of 20 runs one after the other, the queues get %d: one makes up for the time without runs", total)
	}
}

// A queue from which a claim is due again and again, such as one with a rate that others use up, keeps no other waiting
// if the claims take nothing.
func TestClaimsThatTakeNothingTakeTurns(t *testing.T) {
	t.Parallel()
	l, last := registeredQueues(1, 1), 0.0
	exhausted, backlog := l[0], l[1]
	fill(l[1:], 100, 10, &last)
	backlog.taken = 0
	taken := 0
	for range 20 {
		q, n := l.choose(10)
		if q == exhausted {
			n = 0
		}
		serve(l, q, n, &last)
		taken += n
	}
	if taken < 50 {
		t.Errorf("twenty claims take %d runs of the queue that has some, want its share in every second claim", taken)
	}
	for range 1000 { // it does not pay for these claims once it has runs
		serve(l[:1], exhausted, 0, &last)
	}
	claimed := [2]int{}
	for range 100 {
		for i, n := range fill(l, 1, 1, &last) {
			claimed[i] += n
			l[i].taken = 0
		}
	}
	if claimed[0] < 40 || claimed[1] < 40 {
		t.Errorf("of 100 runs one after the other, the queues get %d", claimed)
	}
}

// Queues whose claims take nothing lend their shares: one that holds more slots than its share gets the free ones, too,
// however many other queues are due again and again.
func TestClaimsThatTakeNothingLendTheirShares(t *testing.T) {
	t.Parallel()
	for _, shares := range [][]int{{1, 1}, {1, 1000}, {1000, 1}, {1, 1, 1}, {1, 1000, 7}, {3, 1, 1000, 50}} {
		l, last := registeredQueues(shares...), 0.0
		backlog := l[0]
		fill(l[:1], 1, 1, &last)
		claims := 0
		for free := 99; free > 0; claims++ {
			q, n := l.choose(min(free, 10))
			if q != backlog {
				n = 0
			}
			serve(l, q, n, &last)
			q.taken += n
			free -= n
			if claims > 10*len(l) {
				t.Fatalf("shares %v: %d slots are free after %d claims, and one queue has due runs", shares,
					free, claims)
			}
		}
		backlog.taken--
		if next, n := l.choose(1); next == backlog || n != 1 { // it may have runs again
			t.Errorf("shares %v: queue %s with %d slots is to get the next one", shares, next.name, next.taken)
		}
	}
}

// Nothing is claimed from a queue that the worker's row does not name yet, nor from one that the worker has left.
func TestDueQueues(t *testing.T) {
	t.Parallel()
	l := registeredQueues(1, 1, 1)
	l[0].registered = false
	l[1].left = start
	for _, q := range l {
		q.hint()
	}
	if due, _ := l.due(start, poll); len(due) != 1 || due[0] != l[2] {
		t.Errorf("%d queues are due, want the one that is registered and was not left", len(due))
	}
	l[2].begin(false)
	l[2].end(outcome{state: idle, pause: time.Minute}, start)
	if due, pause := l.due(start.Add(50*time.Second), poll); len(due) > 0 || pause != 10*time.Second {
		t.Errorf("%d queues are due, the next in %v, want none for ten seconds", len(due), pause)
	}
	if !l.drained(start) {
		t.Error("a queue that is not registered, or was left, keeps runs from being started in place")
	}
	l[0].registered = true
	if l.drained(start) {
		t.Error("a run is started in place although another queue may have due runs")
	}
}

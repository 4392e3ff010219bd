package replay

import (
	"sync"
	"time"

	"github.com/kagzi/kagzi/store"
)

// A Consumption is what a run of a consumer has seen and consumed of its topics. The run's end writes it. It is the
// same in every replay, because it follows from records. It is safe for concurrent use.
type Consumption struct {
	consumer string
	names    []string // of its topics

	mu     sync.Mutex
	wakeAt time.Time
	topics map[string]*consumedTopic
}

// A consuming is a run's part of a consumer. It is set before the function begins, and never again.
type consuming struct {
	consumption *Consumption // nil: the run is no consumer's
}

// consume makes the run one of a consumer.
func (c *consuming) consume(by *Consumption) { c.consumption = by }

// consumed returns what the run has seen and consumed of its topics; nil if it is no consumer's.
func (c *consuming) consumed() *Consumption { return c.consumption }

type consumedTopic struct {
	last  store.Peek      // without the events
	end   int64           // the position of the last event that was seen
	after map[int64]int64 // of each event that was seen, the position of the one before it

	reserved []reserved
}

// A reserved is what one call has reserved. It goes back if the call's branch fails or loses a Race.
type reserved struct {
	by     reserver
	ranges [][2]int64
}

// A reserver is a Branch.
type reserver interface{ gaveBack() bool }

// ranges returns what the topic's run consumes, as far as its branches have ended.
func (t *consumedTopic) ranges() (all [][2]int64) {
	for _, r := range t.reserved {
		if !r.by.gaveBack() {
			all = append(all, r.ranges...)
		}
	}
	return all
}

// newConsumption returns that of a run of the consumer which has seen nothing.
func newConsumption(consumer string, topics []string) *Consumption {
	return &Consumption{consumer: consumer, names: topics, topics: map[string]*consumedTopic{}}
}

// Consumer returns the consumer's name.
func (c *Consumption) Consumer() string { return c.consumer }

// Topics returns the consumer's topics.
func (c *Consumption) Topics() []string { return c.names }

// Wake sets when the next run is due if no event comes. The zero time stands for never.
func (c *Consumption) Wake(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wakeAt = at
}

// See notes what the run has seen of a topic.
func (c *Consumption) See(topic string, p *store.Peek) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.topics[topic]
	if t == nil {
		t = &consumedTopic{after: map[int64]int64{}}
		c.topics[topic] = t
	}
	t.last = store.Peek{Settled: p.Settled, More: p.More}
	for _, e := range p.Events {
		t.after[e.Position], t.end = e.After, max(t.end, e.Position)
	}
}

// Seen returns the topic of the event at a position, and the range of positions that belongs to it. It reports whether
// the run has seen it.
func (c *Consumption) Seen(position int64) (topic string, r [2]int64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for topic, t := range c.topics {
		if after, ok := t.after[position]; ok {
			return topic, [2]int64{after, position}, true
		}
	}
	return "", r, false
}

// Reserve notes that the branch's run consumes the ranges, if it completes.
func (c *Consumption) Reserve(by reserver, topic string, ranges [][2]int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.topics[topic]; t != nil {
		t.reserved = append(t.reserved, reserved{by, ranges})
	}
}

// Reserved returns the ranges that the run consumes.
func (c *Consumption) Reserved(topic string) [][2]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.topics[topic]; t != nil {
		return t.ranges()
	}
	return nil
}

// end returns what the run's end writes. A run that consumes something is followed by another one at once if there were
// more events than it has seen. One that consumes nothing is not: it would see the same ones again.
func (c *Consumption) end() *store.Consumed {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	out := &store.Consumed{Consumer: c.consumer, Named: c.names, WakeAt: c.wakeAt}
	for topic, t := range c.topics {
		looked, ranges := t.last.Settled, t.ranges()
		if t.last.More && len(ranges) > 0 {
			looked = min(looked, t.end)
		}
		out.Topics = append(out.Topics, store.ConsumedTopic{Topic: topic, Looked: looked, Ranges: ranges})
	}
	return out
}

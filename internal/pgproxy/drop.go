package pgproxy

import (
	"bufio"
	"slices"
	"sync"
	"sync/atomic"
)

// A Row chooses rows of answers by their columns, as the server sends them. A column that is NULL is nil.
type Row func(columns [][]byte) bool

// A Drop is a loss that the proxy will cause, once.
type Drop struct {
	match   Match
	row     Row // nil: every answer counts
	what    loss
	done    chan struct{}
	release chan struct{} // closed by Release
	once    sync.Once
	counted sync.Once
	holds   atomic.Bool

	proxy     *Proxy
	committed atomic.Bool
	found     atomic.Bool
	discarded atomic.Bool // by Discard
}

// A loss is the kind of a Drop.
type loss int

const (
	ofAnswer     loss = iota
	ofRequest         // and the server never sees it
	ofConnection      // before the server has answered
	ofTime            // the answer is late
	ofPromptness      // the request is late
)

// loses reports whether there is a drop, of this kind.
func (d *Drop) loses(what loss) bool { return d != nil && d.what == what }

// Done returns a channel that is closed once the loss has happened and the connection is closed.
func (d *Drop) Done() <-chan struct{} { return d.done }

// Release forwards an answer that HoldAck holds back, or a request that HoldRequest does.
func (d *Drop) Release() { d.once.Do(func() { close(d.release) }) }

// Discard loses a request that HoldRequest holds back, or will: its connection is closed, on both sides.
func (d *Drop) Discard() {
	d.discarded.Store(true)
	d.Release()
}

// Holds reports whether the proxy holds back an answer or a request.
func (d *Drop) Holds() bool { return d.holds.Load() }

// Found reports whether the answer has a row that the Drop's Row chooses. It is false as long as the server has not
// answered.
func (d *Drop) Found() bool { return d.found.Load() }

// Committed reports whether the server had executed the statements without an error, and no transaction was left open,
// when it answered. It is false as long as it has not answered.
func (d *Drop) Committed() bool { return d.committed.Load() }

// Cancel cancels the loss, and reports whether it had not begun.
func (d *Drop) Cancel() bool {
	d.proxy.mu.Lock()
	defer d.proxy.mu.Unlock()
	i := slices.Index(d.proxy.drops, d)
	if i >= 0 {
		d.proxy.drops = slices.Delete(d.proxy.drops, i, i+1)
	}
	return i >= 0
}

// DropAck forwards the next pipeline that executes a matching statement, waits until the server has answered all of it,
// and then closes the client's connection without forwarding any of the answer. A pipeline is everything that a client
// sends up to a Sync: a statement, or a batch. At its end the server has committed, unless a transaction is open.
func (p *Proxy) DropAck(m Match) *Drop { return p.arm(&Drop{match: m}) }

// DropAckIf is DropAck for the first answer that has a row that the Row chooses. Others are forwarded once they are
// complete.
func (p *Proxy) DropAckIf(m Match, row Row) *Drop { return p.arm(&Drop{match: m, row: row}) }

// DropRequest closes the connection, on both sides, instead of forwarding the next pipeline that executes a matching
// statement.
func (p *Proxy) DropRequest(m Match) *Drop { return p.arm(&Drop{match: m, what: ofRequest}) }

// DropLink forwards the next pipeline that executes a matching statement, and closes the connection, on both sides,
// without waiting for the answer.
func (p *Proxy) DropLink(m Match) *Drop { return p.arm(&Drop{match: m, what: ofConnection}) }

// HoldAck holds back the answer to the next pipeline that executes a matching statement, until Release. The connection
// stays open, and no other is affected. Done is closed when the answer has arrived at the proxy.
func (p *Proxy) HoldAck(m Match) *Drop { return p.arm(&Drop{match: m, what: ofTime}) }

// HoldAckIf is HoldAck for the first answer that has a row that the Row chooses. Others are forwarded once they are
// complete.
func (p *Proxy) HoldAckIf(m Match, row Row) *Drop {
	return p.arm(&Drop{match: m, row: row, what: ofTime})
}

// HoldRequest holds back the next pipeline that executes a matching statement, until Release. The server executes it
// then, also if the client has closed its connection meanwhile. Done is closed when the server has answered, and before
// the answer is forwarded; Found says whether the Row chooses a row of it.
func (p *Proxy) HoldRequest(m Match, row Row) *Drop {
	return p.arm(&Drop{match: m, row: row, what: ofPromptness})
}

func (p *Proxy) arm(d *Drop) *Drop {
	d.proxy, d.done, d.release = p, make(chan struct{}), make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drops = append(p.drops, d)
	return d
}

// take returns the first drop that matches one of the statements, and removes it, unless it depends on the answer.
// Every drop sees all of the statements, so that a Match that counts counts all of them.
func (p *Proxy) take(conn int, statements []string) *Drop {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, d := range p.drops {
		hit := false
		for _, sql := range statements {
			hit = d.match(conn, sql) || hit
		}
		if hit {
			if !d.dependsOnAnswer() {
				p.drops = append(p.drops[:i:i], p.drops[i+1:]...)
			}
			return d
		}
	}
	return nil
}

// happened records a loss.
func (p *Proxy) happened(d *Drop) {
	d.counted.Do(func() {
		p.dropped.Add(1)
		close(d.done)
	})
}

// dependsOnAnswer reports whether the proxy must read all of an answer to know whether it is the one to lose.
func (d *Drop) dependsOnAnswer() bool {
	return d.row != nil && (d.what == ofAnswer || d.what == ofTime)
}

// hold waits until the drop is released, or the link is cut.
func (l *link) hold(d *Drop) {
	d.holds.Store(true)
	defer d.holds.Store(false)
	if d.what == ofTime {
		l.proxy.happened(d)
	}
	select {
	case <-d.release:
	case <-l.ended:
	}
}

// treat does to the answer of p, of which m is a message, what the pipeline's drop says. It reports whether m is lost,
// or kept.
func (l *link) treat(m message, p *pipeline, client *bufio.Writer) (lost bool, err error) {
	d := p.drop
	// the server waits for the data that it asks for with CopyInResponse
	if d == nil || m.kind == 'A' || m.kind == 'G' {
		return false, nil
	}
	if d.row == nil {
		if d.what == ofTime && !p.held {
			p.held = true
			l.hold(d)
		}
		return d.what != ofTime, nil
	}
	if m.kind != 'Z' {
		p.kept = append(p.kept, m.raw...)
		return true, nil
	}
	switch {
	case d.what == ofPromptness:
		d.found.Store(p.found)
		l.proxy.happened(d)
	case !p.found || !d.Cancel(): // it is not the one, or another one was
	case d.what == ofTime:
		d.found.Store(true)
		l.hold(d)
	default:
		d.found.Store(true)
		return true, nil
	}
	_, err = client.Write(p.kept)
	return false, err
}

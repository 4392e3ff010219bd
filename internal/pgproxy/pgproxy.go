// Package pgproxy is a Postgres proxy for tests, which loses what a network loses: an answer after the server has
// committed, a request before the server has seen it, or everything for a while.
//
// It reads the protocol's messages, so a test says which statement is to be hit:
//
//	proxy := pgproxy.Start(t, db.DSN)
//	drop := proxy.DropAck(pgproxy.Contains("INSERT INTO kagzi.workflow_runs"))
//	… // a call through proxy.DSN() fails although its rows are there
//	<-drop.Done()
package pgproxy

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// A Proxy accepts connections and passes them on to one Postgres. Its methods are safe for concurrent use.
type Proxy struct {
	upstream string // DSN
	network  string // of the server's address
	address  string
	listener net.Listener
	dropped  atomic.Int64
	running  sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	links    map[*link]struct{}
	accepted int
	drops    []*Drop       // armed
	open     chan struct{} // closed unless the proxy is frozen
}

// A Match chooses statements by their SQL, and by their connection: its number counts the proxy's connections. It is
// called once for each execution of a statement, not when the statement is prepared, and by one goroutine at a time.
type Match func(conn int, sql string) bool

// Contains matches statements that contain part, in upper or lower case.
func Contains(part string) Match {
	part = strings.ToLower(part)
	return func(_ int, sql string) bool { return strings.Contains(strings.ToLower(sql), part) }
}

// Exactly matches the statement itself, in upper or lower case.
func Exactly(statement string) Match {
	return func(_ int, sql string) bool { return strings.EqualFold(sql, statement) }
}

// After matches what m matches on a connection that has executed a statement which first matches: the commit of one
// transaction, say, and of no other.
func After(first, m Match) Match {
	begun := map[int]bool{}
	return func(conn int, sql string) bool {
		if begun[conn] && m(conn, sql) {
			return true
		}
		begun[conn] = begun[conn] || first(conn, sql)
		return false
	}
}

// Nth matches the nth of the statements that m matches, counted from 1, and no other.
func Nth(n int, m Match) Match {
	seen := 0
	return func(conn int, sql string) bool {
		if !m(conn, sql) {
			return false
		}
		seen++
		return seen == n
	}
}

// A Drop is a loss that the proxy is armed with. It happens once.
type Drop struct {
	match   Match
	what    loss
	done    chan struct{}
	release chan struct{} // closed by Release
	once    sync.Once
	told    sync.Once
	holds   atomic.Bool
}

// A loss is what is lost.
type loss int

const (
	ofAnswer     loss = iota
	ofRequest         // and the server never sees it
	ofConnection      // before the server has answered
	ofTime            // the answer is late
)

// Done returns a channel that is closed once the loss has happened and the connection is cut.
func (d *Drop) Done() <-chan struct{} { return d.done }

// Release lets an answer go on its way that HoldAck holds back.
func (d *Drop) Release() { d.once.Do(func() { close(d.release) }) }

// Holds reports whether an answer is held back, and somebody waits for it.
func (d *Drop) Holds() bool { return d.holds.Load() }

// Start starts a proxy for the server that the DSN leads to. It ends with the test.
func Start(t testing.TB, upstreamDSN string) *Proxy {
	t.Helper()
	p, err := Listen(upstreamDSN)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// Listen starts a proxy for programs that are no tests. Close ends it.
func Listen(upstreamDSN string) (*Proxy, error) {
	cfg, err := pgconn.ParseConfig(upstreamDSN)
	if err != nil {
		return nil, fmt.Errorf("pgproxy: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("pgproxy: %w", err)
	}
	p := &Proxy{upstream: upstreamDSN, listener: listener, links: map[*link]struct{}{}, open: make(chan struct{})}
	p.network, p.address = pgconn.NetworkAddress(cfg.Host, cfg.Port)
	close(p.open)
	p.running.Go(p.accept)
	return p, nil
}

// Close cuts all connections and returns once nothing of the proxy runs any more.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	err := p.listener.Close()
	p.CutAll()
	p.running.Wait()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// DSN returns the upstream DSN, changed to lead through the proxy.
func (p *Proxy) DSN() string {
	host, port, _ := net.SplitHostPort(p.listener.Addr().String())
	u, err := url.Parse(p.upstream)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return fmt.Sprintf("%s host=%s port=%s sslmode=disable", p.upstream, host, port) // the last of a key counts
	}
	u.Host = net.JoinHostPort(host, port)
	q := u.Query()
	q.Del("host")
	q.Del("port")
	q.Set("sslmode", "disable")
	u.RawQuery = q.Encode()
	return u.String()
}

// DropAck lets the next pipeline that executes a matching statement reach the server, waits until the server has
// answered all of it, and then cuts the client's connection without a word of the answer. A pipeline is what
// is sent up to a Sync: a statement, or a batch; with it the server has committed, unless a transaction is open.
func (p *Proxy) DropAck(m Match) *Drop { return p.arm(&Drop{match: m}) }

// DropRequest cuts the connection, on both sides, instead of sending the next pipeline that executes a matching
// statement to the server.
func (p *Proxy) DropRequest(m Match) *Drop { return p.arm(&Drop{match: m, what: ofRequest}) }

// DropLink sends the next pipeline that executes a matching statement to the server, and cuts the connection, on both
// sides, without waiting for what the server makes of it.
func (p *Proxy) DropLink(m Match) *Drop { return p.arm(&Drop{match: m, what: ofConnection}) }

// HoldAck holds back the answer to the next pipeline that executes a matching statement, until Release. The connection
// stays, and all others go on. Done says that the answer has come to the proxy.
func (p *Proxy) HoldAck(m Match) *Drop { return p.arm(&Drop{match: m, what: ofTime}) }

func (p *Proxy) arm(d *Drop) *Drop {
	d.done, d.release = make(chan struct{}), make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drops = append(p.drops, d)
	return d
}

// Disarm takes back what has not happened yet.
func (p *Proxy) Disarm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drops = nil
}

// Dropped returns how many losses have happened.
func (p *Proxy) Dropped() int { return int(p.dropped.Load()) }

// Freeze stops passing on, in both directions, until Unfreeze. Nobody is told: connections stay open, new ones
// are accepted, and what is sent is kept.
func (p *Proxy) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.open:
		p.open = make(chan struct{})
	default: // frozen already
	}
}

// Unfreeze passes on what was kept, and all that follows.
func (p *Proxy) Unfreeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.open:
	default:
		close(p.open)
	}
}

// CutAll cuts all connections, on both sides. New ones are accepted.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.cut()
	}
}

// Connections returns how many connections go through the proxy.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// accept serves connections until the listener is closed.
func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		p.accepted++
		l := newLink(p, p.accepted, client)
		if p.closed {
			l.cut()
		}
		p.links[l] = struct{}{}
		p.mu.Unlock()
		p.running.Go(func() {
			l.serve()
			p.mu.Lock()
			delete(p.links, l)
			p.mu.Unlock()
		})
	}
}

// take returns the first armed drop that matches one of the statements, and disarms it. It is shown all of them,
// so that a match which counts does so rightly.
func (p *Proxy) take(conn int, statements []string) *Drop {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, d := range p.drops {
		hit := false
		for _, sql := range statements {
			hit = d.match(conn, sql) || hit
		}
		if hit {
			p.drops = append(p.drops[:i:i], p.drops[i+1:]...)
			return d
		}
	}
	return nil
}

// happened reports a loss.
func (p *Proxy) happened(d *Drop) {
	d.told.Do(func() {
		p.dropped.Add(1)
		close(d.done)
	})
}

// gate returns a channel that is closed while the proxy passes on.
func (p *Proxy) gate() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open
}

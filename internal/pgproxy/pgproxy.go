// Package pgproxy is a Postgres proxy for tests that loses messages as a network does: an answer after the server has
// committed, a request before the server has received it, or everything for a while.
//
// It reads the messages of the protocol, so a test chooses the statement that is affected:
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

// A Proxy accepts connections and forwards them to one Postgres server. Its methods are safe for concurrent use.
type Proxy struct {
	upstream string // DSN
	listener net.Listener
	dropped  atomic.Int64
	running  sync.WaitGroup

	unreachable atomic.Int64 // attempts to connect to the server that failed

	mu       sync.Mutex
	network  string // of the server's address
	address  string
	closed   bool
	imposed  []*Imposed
	errors   map[string]int // errors of the server so far, by SQLSTATE
	links    map[*link]struct{}
	accepted int
	drops    []*Drop       // armed
	open     chan struct{} // closed unless the proxy is frozen
}

// A Match chooses statements by their SQL and by the number of their connection, which counts the proxy's connections.
// It is called once for each execution of a statement, not for its preparation, and by one goroutine at a time.
type Match func(conn int, sql string) bool

// Contains matches statements that contain part, regardless of case.
func Contains(part string) Match {
	part = strings.ToLower(part)
	return func(_ int, sql string) bool { return strings.Contains(strings.ToLower(sql), part) }
}

// Exactly matches one statement, regardless of case.
func Exactly(statement string) Match {
	return func(_ int, sql string) bool { return strings.EqualFold(sql, statement) }
}

// After matches the statements that m matches, on a connection that has already executed a statement that first
// matches. It serves to match the commit of one transaction only, for example.
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

// Nth matches only the nth of the statements that m matches, counted from 1.
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

// Start starts a proxy for the server of a DSN. It ends with the test.
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

// Listen starts a proxy for a program that is not a test. Close ends it.
func Listen(upstreamDSN string) (*Proxy, error) {
	cfg, err := pgconn.ParseConfig(upstreamDSN)
	if err != nil {
		return nil, fmt.Errorf("pgproxy: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("pgproxy: %w", err)
	}
	p := &Proxy{
		upstream: upstreamDSN, listener: listener, links: map[*link]struct{}{}, open: make(chan struct{}),
		errors: map[string]int{},
	}
	p.network, p.address = pgconn.NetworkAddress(cfg.Host, cfg.Port)
	close(p.open)
	p.running.Go(p.accept)
	return p, nil
}

// Close closes all connections, and returns when all goroutines of the proxy have ended.
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

// DSN returns the DSN of the server, changed to connect through the proxy.
func (p *Proxy) DSN() string {
	host, port, _ := net.SplitHostPort(p.listener.Addr().String())
	u, err := url.Parse(p.upstream)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		// the last value of a key counts
		return fmt.Sprintf("%s host=%s port=%s sslmode=disable", p.upstream, host, port)
	}
	u.Host = net.JoinHostPort(host, port)
	q := u.Query()
	q.Del("host")
	q.Del("port")
	q.Set("sslmode", "disable")
	u.RawQuery = q.Encode()
	return u.String()
}

// Disarm cancels all losses that have not happened yet.
func (p *Proxy) Disarm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drops = nil
}

// Dropped returns the number of losses that have happened.
func (p *Proxy) Dropped() int { return int(p.dropped.Load()) }

// Freeze stops forwarding, in both directions, until Unfreeze. Clients and server do not notice: connections stay open,
// new ones are accepted, and messages are kept.
func (p *Proxy) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.open:
		p.open = make(chan struct{})
	default: // already frozen
	}
}

// Unfreeze forwards the messages that were kept, and all that follow.
func (p *Proxy) Unfreeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.open:
	default:
		close(p.open)
	}
}

// CutAll closes all connections, on both sides. New ones are accepted.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.cut()
	}
}

// Connections returns the number of connections through the proxy.
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
		} else if p.refuses() {
			l.reset()
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

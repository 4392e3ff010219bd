package pgproxy

import (
	"bytes"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// A Conn is a connection through the proxy.
type Conn struct {
	Number  int    // the first has number 1
	Port    int    // of the proxy, as the server sees it; zero if there is no TCP connection to the server
	Listens bool   // it has executed a LISTEN
	Latest  string // the statement that it executed last
}

// Listens matches connections that receive notifications.
func Listens(c Conn) bool { return c.Listens }

// A Trouble is a way in which the network is bad for a while.
type Trouble struct {
	Only   func(Conn) bool // the connections concerned; nil: all, also those that are made later
	Delay  time.Duration   // everything arrives so much later
	Chunk  int             // everything is sent in pieces of at most so many bytes; zero: as it comes
	Frozen bool            // nothing arrives, and connections stay open
	Refuse bool            // new connections are reset at once, whatever Only says

	Deaf func(channel, payload string) bool // the notifications that are lost; nil: none
}

// Everything is a Trouble.Deaf: all notifications are lost.
func Everything(_, _ string) bool { return true }

// An Imposed is a Trouble under way. Several may be under way at once: they add up.
type Imposed struct {
	Trouble
	proxy  *Proxy
	count  atomic.Int64
	lifted chan struct{}
	once   sync.Once
}

// Impose begins a Trouble. It lasts until Lift.
func (p *Proxy) Impose(t Trouble) *Imposed {
	i := &Imposed{Trouble: t, proxy: p, lifted: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.imposed = append(p.imposed, i)
	return i
}

// Lift ends the Trouble. Data kept back is forwarded.
func (i *Imposed) Lift() {
	i.once.Do(func() {
		i.proxy.mu.Lock()
		defer i.proxy.mu.Unlock()
		i.proxy.imposed = slices.DeleteFunc(i.proxy.imposed, func(other *Imposed) bool { return other == i })
		close(i.lifted)
	})
}

// Count returns how many times the Trouble has hit: messages kept back or lost, writes delayed or cut into pieces,
// connections refused.
func (i *Imposed) Count() int { return int(i.count.Load()) }

// Troubles returns how many troubles are under way, and losses that have not happened yet.
func (p *Proxy) Troubles() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.imposed) + len(p.drops)
}

// hits reports whether the Trouble concerns c.
func (i *Imposed) hits(c Conn) bool { return i.Only == nil || i.Only(c) }

// Conns returns the connections through the proxy, the oldest first.
func (p *Proxy) Conns() []Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	var conns []Conn
	for l := range p.links {
		conns = append(conns, l.conn())
	}
	slices.SortFunc(conns, func(a, b Conn) int { return a.Number - b.Number })
	return conns
}

// Cut closes the connections that match, on both sides, and returns how many there were.
func (p *Proxy) Cut(only func(Conn) bool) int { return p.end(only, (*link).cut) }

// Reset resets the connections that match, on both sides: the peers get a RST where Cut sends a FIN. It returns how
// many there were.
func (p *Proxy) Reset(only func(Conn) bool) int { return p.end(only, (*link).reset) }

func (p *Proxy) end(only func(Conn) bool, end func(*link)) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		if only == nil || only(l.conn()) {
			end(l)
			n++
		}
	}
	return n
}

// Errors returns how many errors with the SQLSTATE the server has sent.
func (p *Proxy) Errors(sqlstate string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.errors[sqlstate]
}

// Unreachable returns how many connections had no effect because the server could not be reached.
func (p *Proxy) Unreachable() int { return int(p.unreachable.Load()) }

// Unanswered returns how many requests have no answer yet, over all connections. Those that the proxy keeps back count,
// too.
func (p *Proxy) Unanswered() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.mu.Lock()
		n += len(l.answers)
		l.mu.Unlock()
	}
	return n
}

// Redirect makes new connections lead to the server of another DSN, as after a failover. Clients give it the
// credentials of the first. Connections under way stay where they are.
func (p *Proxy) Redirect(dsn string) error {
	cfg, err := pgconn.ParseConfig(dsn)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.network, p.address = pgconn.NetworkAddress(cfg.Host, cfg.Port)
	return nil
}

// target returns the network and the address of the server.
func (p *Proxy) target() (network, address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.network, p.address
}

// refuses reports, and counts, whether a new connection is refused. The caller holds p.mu.
func (p *Proxy) refuses() (refused bool) {
	for _, i := range p.imposed {
		if i.Refuse {
			i.count.Add(1)
			refused = true
		}
	}
	return refused
}

// over returns the troubles that concern l, of those for which is returns true.
func (p *Proxy) over(l *link, is func(*Imposed) bool) (hits []*Imposed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.imposed) == 0 {
		return nil
	}
	conn := l.conn()
	for _, i := range p.imposed {
		if is(i) && i.hits(conn) {
			i.count.Add(1)
			hits = append(hits, i)
		}
	}
	return hits
}

// obstacle returns a channel that is closed when one of the reasons for which nothing of l is forwarded has gone. It
// returns nil if there is none.
func (p *Proxy) obstacle(l *link) <-chan struct{} {
	if frozen := p.over(l, func(i *Imposed) bool { return i.Frozen }); frozen != nil {
		return frozen[0].lifted
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.open:
		return nil
	default:
		return p.open
	}
}

// isDeaf reports whether a NotificationResponse for l is lost.
func (p *Proxy) isDeaf(l *link, m message) bool {
	channel, rest := cutString(m.body()[4:]) // after the sender's process ID
	payload, _ := cutString(rest)
	return p.over(l, func(i *Imposed) bool { return i.Deaf != nil && i.Deaf(channel, payload) }) != nil
}

// sawError counts an ErrorResponse.
func (p *Proxy) sawError(body []byte) {
	for field := range bytes.SplitSeq(body, []byte{0}) {
		if len(field) > 1 && field[0] == 'C' {
			p.mu.Lock()
			p.errors[string(field[1:])]++
			p.mu.Unlock()
			return
		}
	}
}

// conn describes the link.
func (l *link) conn() Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := Conn{Number: l.number, Listens: l.listens, Latest: l.latest}
	if l.server != nil {
		if address, ok := l.server.LocalAddr().(*net.TCPAddr); ok {
			c.Port = address.Port
		}
	}
	return c
}

// reset is cut, but both peers get a RST.
func (l *link) reset() {
	l.mu.Lock()
	for _, c := range []net.Conn{l.client, l.server} {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
	}
	l.mu.Unlock()
	l.cut()
}

// A paced writes to one side of a link, as late and in as small pieces as the troubles say.
type paced struct {
	l  *link
	to net.Conn
}

func (w paced) Write(b []byte) (n int, err error) {
	var delay time.Duration
	chunk := len(b)
	for _, i := range w.l.proxy.over(w.l, func(i *Imposed) bool { return i.Delay > 0 || i.Chunk > 0 }) {
		delay += i.Delay
		if i.Chunk > 0 {
			chunk = min(chunk, i.Chunk)
		}
	}
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-w.l.ended:
			return 0, net.ErrClosed
		}
	}
	for piece := range slices.Chunk(b, max(1, chunk)) {
		m, err := w.to.Write(piece)
		n += m
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

package pgproxy

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
)

// A link is the connection of one client, and the connection to the server that belongs to it.
type link struct {
	proxy  *Proxy
	number int
	client net.Conn
	ended  chan struct{} // closed by cut

	mu      sync.Mutex
	server  net.Conn    // nil until connected
	answers []*pipeline // pipelines that the server has not answered yet, in order
	isCut   bool
	listens bool   // it has executed a LISTEN
	latest  string // the statement that it executed last
}

// A pipeline is everything that a client sends up to a Sync. The server answers it with messages up to a ReadyForQuery.
type pipeline struct {
	drop   *Drop // nil: forward the answer
	held   bool  // its answer has been held back
	failed bool  // an error is among its answers
	found  bool  // the drop's Row chooses one of its rows

	kept []byte // its answer so far, if all of it is needed to know what to do with it
}

func newLink(p *Proxy, number int, client net.Conn) *link {
	return &link{proxy: p, number: number, client: client, ended: make(chan struct{})}
}

// cut closes both connections. It ends the goroutines that read or write them, or that wait for Unfreeze.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isCut {
		return
	}
	l.isCut = true
	close(l.ended)
	_ = l.client.Close()
	if l.server != nil {
		_ = l.server.Close()
	}
}

// serve forwards messages in both directions until either side closes the connection or the link is cut.
func (l *link) serve() {
	defer l.cut()
	requests := bufio.NewReader(l.client)
	startup, err := readStartup(requests, l.client)
	if err != nil || l.thawed() != nil {
		return
	}
	if err := l.connect(); err != nil {
		return
	}
	l.expect(&pipeline{}) // the server's greeting ends with a ReadyForQuery too
	if _, err := (paced{l, l.server}).Write(startup); err != nil {
		return
	}
	var answering sync.WaitGroup
	answering.Go(func() {
		defer l.cut()
		_ = l.passAnswers() // its error is that the connection has ended
	})
	l.passRequests(requests)
	l.cut()
	answering.Wait()
}

// connect dials the server.
func (l *link) connect() error {
	network, address := l.proxy.target()
	server, err := net.Dial(network, address)
	if err != nil {
		l.proxy.unreachable.Add(1)
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isCut {
		_ = server.Close()
		return net.ErrClosed
	}
	l.server = server
	return nil
}

// thawed waits until nothing keeps the proxy from forwarding messages of the link. It returns an error if the link was
// cut meanwhile.
func (l *link) thawed() error {
	for wait := l.proxy.obstacle(l); wait != nil; wait = l.proxy.obstacle(l) {
		select {
		case <-wait:
		case <-l.ended:
			return net.ErrClosed
		}
	}
	select {
	case <-l.ended:
		return net.ErrClosed
	default:
		return nil
	}
}

// expect records that the server will answer a pipeline.
func (l *link) expect(p *pipeline) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers = append(l.answers, p)
}

// answering returns the pipeline that the server is answering. An unexpected message, which answers a Flush or is a
// notice of the server, belongs to no pipeline that is dropped.
func (l *link) answering() *pipeline {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.answers) == 0 {
		return &pipeline{}
	}
	return l.answers[0]
}

// answered records that the server has answered a pipeline.
func (l *link) answered() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.answers) > 0 {
		l.answers = l.answers[1:]
	}
}

// note remembers what the client has executed.
func (l *link) note(executed []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, sql := range executed {
		l.latest = sql
		l.listens = l.listens || len(sql) > 7 && strings.EqualFold(sql[:7], "LISTEN ")
	}
}

// inspect learns from a message of the server whether it has executed p.
func (l *link) inspect(m message, p *pipeline) {
	switch m.kind {
	case 'E': // ErrorResponse
		p.failed = true
		l.proxy.sawError(m.body())
	case 'D': // DataRow
		if p.drop != nil && p.drop.row != nil {
			p.found = p.found || p.drop.row(columns(m.body()))
		}
	case 'Z': // ReadyForQuery, with the state of the transaction
		if p.drop != nil && !p.failed && (p.found || !p.drop.dependsOnAnswer()) && len(m.body()) == 1 &&
			m.body()[0] == 'I' {
			p.drop.committed.Store(true)
		}
	}
}

// requests are the messages of a client that the proxy holds back, because their pipeline is not complete.
type requests struct {
	held       []byte
	executed   []string          // the statements of the pipeline
	statements map[string]string // prepared ones, by name
}

// add holds a message back. It reports whether the server may wait for those that are held back, and whether a pipeline
// ends here.
func (r *requests) add(m message) (due, ends bool) {
	r.held = append(r.held, m.raw...)
	switch m.kind {
	case 'P': // Parse
		name, rest := cutString(m.body())
		r.statements[name], _ = cutString(rest)
	case 'B': // Bind
		_, rest := cutString(m.body()) // the portal
		name, _ := cutString(rest)
		r.executed = append(r.executed, r.statements[name])
	case 'C', 'D', 'E': // Close, Describe, Execute
	case 'Q': // Query
		sql, _ := cutString(m.body())
		r.executed = append(r.executed, sql)
		return true, true
	case 'S', 'F': // Sync, FunctionCall
		return true, true
	default: // Flush, Terminate, copied data, passwords: no pipeline ends here
		return true, false
	}
	return false, false
}

// passRequests forwards the client's messages until the link ends. It holds a pipeline back until it is complete, so
// that the server receives all of it or nothing.
func (l *link) passRequests(client *bufio.Reader) {
	r := requests{statements: map[string]string{}}
	for {
		m, err := readMessage(client)
		if err != nil {
			_ = l.thawed() // a frozen proxy does not forward the end of a connection either
			return
		}
		due, ends := r.add(m)
		if !due {
			continue
		}
		var dropped *Drop
		if ends {
			l.note(r.executed)
			dropped, r.executed = l.proxy.take(l.number, r.executed), nil
			if dropped.loses(ofRequest) {
				l.lose(dropped)
				return
			}
			l.expect(&pipeline{drop: dropped}) // before the server can answer
		}
		if !l.send(r.held, dropped) {
			return
		}
		r.held = r.held[:0]
	}
}

// send sends messages to the server. They end with the pipeline that is dropped, if there is one. send reports whether
// the link goes on.
func (l *link) send(held []byte, dropped *Drop) bool {
	if l.thawed() != nil {
		return false
	}
	late := dropped.loses(ofPromptness)
	if late {
		l.hold(dropped)
		if dropped.discarded.Load() {
			l.lose(dropped)
			return false
		}
	}
	if _, err := (paced{l, l.server}).Write(held); err != nil {
		return false
	}
	if dropped.loses(ofConnection) {
		l.lose(dropped)
		return false
	}
	if late { // the end of the client's connection must not end that to the server before the request is executed
		select {
		case <-dropped.done:
		case <-l.ended:
		}
	}
	return true
}

// lose cuts the link because of a drop, which has happened then.
func (l *link) lose(dropped *Drop) {
	l.cut()
	l.proxy.happened(dropped)
}

// passAnswers forwards the server's messages, except the answers that a Drop loses.
func (l *link) passAnswers() error {
	server, client := bufio.NewReader(l.server), bufio.NewWriter(paced{l, l.client})
	for {
		m, err := readMessage(server)
		if err != nil {
			return errors.Join(err, l.thawed(), client.Flush())
		}
		if err := l.thawed(); err != nil {
			return err
		}
		deaf := m.kind == 'A' && l.proxy.isDeaf(l, m) // a NotificationResponse
		p := l.answering()
		l.inspect(m, p)
		lost, err := l.treat(m, p, client)
		if err != nil {
			return err
		}
		if !deaf && !lost {
			if _, err := client.Write(m.raw); err != nil {
				return err
			}
		}
		if m.kind == 'Z' { // ReadyForQuery: the server has executed the pipeline
			l.answered()
			if lost {
				err := client.Flush() // earlier answers are not lost
				l.lose(p.drop)
				return err
			}
		}
		if server.Buffered() == 0 {
			if err := client.Flush(); err != nil {
				return err
			}
		}
	}
}

// A message is a message of the protocol: its kind, the length of the rest, the body.
type message struct {
	kind byte
	raw  []byte // all of it
}

func (m message) body() []byte { return m.raw[5:] }

// maxMessage is the largest message that Postgres sends or accepts.
const maxMessage = 1 << 30

func readMessage(r *bufio.Reader) (message, error) {
	header := make([]byte, 5)
	if _, err := io.ReadFull(r, header); err != nil {
		return message{}, err
	}
	length := int(binary.BigEndian.Uint32(header[1:]))
	if length < 4 || length > maxMessage {
		return message{}, fmt.Errorf("pgproxy: message %q of %d bytes", header[0], length)
	}
	raw := make([]byte, 1+length)
	copy(raw, header)
	_, err := io.ReadFull(r, raw[len(header):])
	return message{header[0], raw}, err
}

// Codes that a client may send instead of the protocol's version.
const (
	sslRequest    = 80877103
	gssEncRequest = 80877104
)

// readStartup reads a connection's first message, which has no kind, and refuses offers of encryption before it.
func readStartup(r *bufio.Reader, client io.Writer) ([]byte, error) {
	for {
		header := make([]byte, 8)
		if _, err := io.ReadFull(r, header); err != nil {
			return nil, err
		}
		length, code := binary.BigEndian.Uint32(header), binary.BigEndian.Uint32(header[4:])
		if length < 8 || length > 10_000 { // Postgres's own limit
			return nil, fmt.Errorf("pgproxy: startup message of %d bytes", length)
		}
		raw := make([]byte, length)
		copy(raw, header)
		if _, err := io.ReadFull(r, raw[8:]); err != nil {
			return nil, err
		}
		if code != sslRequest && code != gssEncRequest {
			return raw, nil
		}
		if _, err := client.Write([]byte{'N'}); err != nil {
			return nil, err
		}
	}
}

// columns returns the columns of a DataRow.
func columns(body []byte) (all [][]byte) {
	for body = body[2:]; len(body) >= 4; { // after their number
		length := int(int32(binary.BigEndian.Uint32(body)))
		body = body[4:]
		if length < 0 {
			all = append(all, nil)
			continue
		}
		all = append(all, body[:length])
		body = body[length:]
	}
	return all
}

// cutString returns the NUL-terminated string at the start of b, and the rest of b.
func cutString(b []byte) (s string, rest []byte) {
	before, after, _ := bytes.Cut(b, []byte{0})
	return string(before), after
}

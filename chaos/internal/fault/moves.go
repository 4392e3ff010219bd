package fault

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/kagzi/kagzi/internal/localpg"

	"github.com/kagzi/kagzi/chaos/internal/fleet"
)

// notShared are the faults that need workers with sessions of their own for heartbeats, or a coordinator that leads:
// workers of many namespaces have neither.
var notShared = []string{
	"F5 terminate the heartbeats' sessions", "F5 terminate the coordinator's sessions", "F25 kill the coordinator",
	"F25 freeze the coordinator",
}

// openBoth starts a server with two databases, between which namespaces move.
func openBoth(ctx context.Context, o Options) (*Site, error) {
	o.MaxConnections += 200 // each worker has sessions in both
	s, err := o.open(ctx, localpg.Config{})
	if err != nil {
		return nil, err
	}
	s.Both = true
	s.Faults = append(slices.DeleteFunc(s.Faults, func(f Fault) bool { return slices.Contains(notShared, f.Name) }),
		// F28: a namespace moves to the other database.
		Fault{Name: "F28 move a namespace", Kind: "F28", Inject: moving(0), Local: true, Joins: true},
		// F28: a mover is killed before one of its statements. Another one continues or cancels the move.
		Fault{Name: "F28 kill a mover", Kind: "F28", Inject: moving(syscall.SIGKILL), Local: true, Joins: true},
		// F28: a mover is frozen before one of its statements, and goes on when others have done its work.
		Fault{Name: "F28 freeze a mover", Kind: "F28", Inject: moving(syscall.SIGSTOP), Local: true, Joins: true},
	)
	return s, nil
}

// moving moves one namespace after the other for d. The signal, if there is one, hits each first mover.
func moving(s syscall.Signal) Injection {
	return func(ctx context.Context, w *World, r *rand.Rand, d time.Duration) (effect int, note string, err error) {
		for end := time.Now().Add(d); ; {
			namespace := fleet.Namespaces[1+r.IntN(len(fleet.Namespaces)-1)]
			if release, ok := w.Routes.Take(namespace); ok {
				m := &moves{World: w, r: r, proxy: w.proxies()[r.IntN(len(w.proxies()))].DSN()}
				m.Namespace, m.From = namespace, w.Routes.Of(namespace)
				m.To, m.Wait = 1-m.From, time.Duration(1+r.IntN(2000))*time.Millisecond
				what, err := m.move(ctx, s)
				release()
				note += what
				if err != nil {
					return effect, note, err
				}
				effect++
			}
			if ctx.Err() != nil || time.Now().After(end) {
				return effect, note, ctx.Err()
			}
			pause(ctx, 100*time.Millisecond)
		}
	}
}

// Bring moves a namespace from the second database of a server to the first, past all proxies.
func (w *World) Bring(ctx context.Context, dsn, namespace string) error {
	m := &moves{World: w, proxy: dsn, Move: fleet.Move{Namespace: namespace, From: 1, Wait: patience}}
	if !m.try(false) {
		return errors.New(m.said())
	}
	return m.arrived(ctx)
}

// moves are the movers of one namespace.
type moves struct {
	*World
	fleet.Move
	r      *rand.Rand
	proxy  string // of one of the workers, or of the clients
	movers []*fleet.Process
}

// launch starts a mover. change may be nil.
func (m *moves) launch(cancel bool, change func(*fleet.Spec)) (*fleet.Process, error) {
	move := m.Move
	move.Cancel = cancel
	spec := fleet.Spec{
		Name: fmt.Sprintf("mover %d", m.launched.Add(1)), DSN: m.proxy, Conns: 4, Move: &move,
	}
	if change != nil {
		change(&spec)
	}
	p, err := fleet.Launch(m.Dir, spec)
	if err == nil {
		m.movers = append(m.movers, p)
	}
	return p, err
}

// move moves the namespace. It returns a Violation if that can neither be ended nor be cancelled.
func (m *moves) move(ctx context.Context, s syscall.Signal) (note string, err error) {
	mend, cancel := mending(ctx)
	defer cancel()
	defer func() { err = errors.Join(err, m.end()) }()
	gives := s != 0 && m.r.IntN(2) == 0 // others cancel the move
	first, err := m.launch(false, func(spec *fleet.Spec) {
		spec.Point, spec.Nth, spec.Signal = "statement", 1+m.r.IntN(350), s
	})
	if err != nil {
		return "", err
	}
	until(mend, mendTime, func() bool { return !first.Alive() || state(first.PID()) == 'T' })
	stopped := first.Alive()
	if stopped {
		time.AfterFunc(time.Duration(m.r.IntN(4000))*time.Millisecond, func() { _ = first.Signal(syscall.SIGCONT) })
		if m.r.IntN(2) == 0 { // as a server does that misses the frozen process
			_ = m.exec(mend, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1`,
				first.Spec.Name)
		}
	}
	note = fmt.Sprintf("%s to %s", m.Namespace, fleet.Databases[m.To])
	switch {
	case stopped:
		note += fmt.Sprintf(", frozen at statement %d", first.Spec.Nth)
	case first.Killed():
		note += fmt.Sprintf(", killed at statement %d", first.Spec.Nth)
	case first.Err() == nil:
		return note + "; ", m.arrived(mend)
	}
	for mend.Err() == nil {
		if gives && m.try(true) {
			return note + ", cancelled; ", nil
		}
		if m.try(false) {
			return note + ", continued; ", m.arrived(mend)
		}
		pause(mend, 200*time.Millisecond)
	}
	return note, &Violation{fmt.Sprintf("the move of %s to %s can neither be ended nor cancelled: %s", m.Namespace,
		fleet.Databases[m.To], m.said())}
}

// try reports whether another mover has ended or cancelled the move.
func (m *moves) try(cancel bool) bool {
	p, err := m.launch(cancel, nil)
	if err != nil {
		return false
	}
	select {
	case <-p.Done():
	case <-time.After(mendTime):
		return false
	}
	return p.Err() == nil
}

// arrived notes that the namespace has arrived, and checks that it has left nothing behind, as soon as both servers
// answer: another fault may be under way.
func (m *moves) arrived(ctx context.Context) error {
	if err := m.Routes.Set(m.Namespace, m.To); err != nil {
		return err
	}
	for {
		left, err := m.LeftBehind(ctx, m.Namespace, m.From)
		switch {
		case left != "":
			return &Violation{fmt.Sprintf("%s has moved to %s and left rows behind: %s", m.Namespace,
				fleet.Databases[m.To], left)}
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return err
		}
		pause(ctx, 200*time.Millisecond)
	}
}

// end ends all movers. It returns a Violation if one has found rows that it had not copied.
func (m *moves) end() error {
	for _, p := range m.movers {
		_ = p.Signal(syscall.SIGCONT)
		select {
		case <-p.Done():
		case <-time.After(patience):
			p.Kill()
			<-p.Done()
		}
	}
	if text := m.said(); strings.Contains(text, "report this as a bug") {
		return &Violation{text}
	}
	return nil
}

// said returns what the movers have said at their ends.
func (m *moves) said() string {
	var all []string
	for _, p := range m.movers {
		text, _ := os.ReadFile(logOf(p))
		if i := strings.LastIndex(string(text), "worker process:"); i >= 0 {
			all = append(all, p.Spec.Name+": "+strings.TrimSpace(string(text[i:])))
		}
	}
	return strings.Join(all, "; ")
}

package fault

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/kagzi/kagzi/internal/localpg"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

// A ServerKind is a kind of server that a round can be played on.
type ServerKind struct {
	Name string
	Open func(ctx context.Context, o Options) (*Site, error)
}

// Options are what the driver asks of a kind of server.
type Options struct {
	MaxConnections int    // zero: what localpg thinks right
	Dir            string // for files; other users must be able to search it and the directories above it
}

// A Site is a server that is there, of one kind.
type Site struct {
	Server *localpg.Cluster // for World.Server
	DSN    string           // for the proxies of workers and clients
	Admin  string           // for World.Admin; after a failover it leads to the new server
	Faults []Fault          // all that this kind of server allows

	// Both says that there are two databases, between which namespaces move.
	Both bool

	// Losing says that some of the faults lose what the server had acknowledged. World.Losses says when: see [Loss].
	Losing bool

	closers []func() error
}

// Close ends what Open has started.
func (s *Site) Close() (err error) {
	for _, f := range slices.Backward(s.closers) {
		err = errors.Join(err, f())
	}
	s.closers = nil
	return err
}

func (s *Site) onClose(f func() error) { s.closers = append(s.closers, f) }

// ServerKinds returns the kinds of servers that this machine allows, the plain one first, and why it does not allow the
// others.
func ServerKinds() (all []ServerKind, missing map[string]error) {
	missing = map[string]error{}
	for _, g := range []struct {
		ServerKind
		lacks func() error
	}{
		{ServerKind{"plain", openPlain}, nil},
		{ServerKind{"synchronous standby", openReplicated(true)}, nil},
		{ServerKind{"asynchronous standby", openReplicated(false)}, nil},
		{ServerKind{"pgbouncer", openPooled}, lacksPooler},
		{ServerKind{"clock that jumps", openClock}, lacksCompiler},
		{ServerKind{"small disk", openSmallDisk}, lacksMount},
		{ServerKind{"bad disk", openBadDisk}, lacksStrace},
		{ServerKind{"databases", openBoth}, nil},
	} {
		if g.lacks != nil {
			if err := g.lacks(); err != nil {
				missing[g.Name] = err
				continue
			}
		}
		all = append(all, g.ServerKind)
	}
	return all, missing
}

// open starts the server of a site.
func (o Options) open(ctx context.Context, cfg localpg.Config) (*Site, error) {
	cfg.MaxConnections = o.MaxConnections
	server, err := cfg.Start(ctx)
	if err != nil {
		return nil, err
	}
	s := &Site{Server: server, DSN: server.DSN(), Admin: server.DSN(), Faults: All()}
	s.onClose(func() error { return errors.Join(keepLog(s.Server, o.Dir), s.Server.Stop()) })
	return s, nil
}

// keepLog copies the server's log into dir.
func keepLog(server *localpg.Cluster, dir string) error {
	if dir == "" {
		return nil
	}
	text, err := os.ReadFile(server.LogFile())
	return errors.Join(err, os.WriteFile(filepath.Join(dir, "server.log"), text, 0o600))
}

func openPlain(ctx context.Context, o Options) (*Site, error) { return o.open(ctx, localpg.Config{}) }

// redirect has workers, clients and the administrator use another server from now on.
func (w *World) redirect(vip *pgproxy.Proxy, to *localpg.Cluster) (err error) {
	w.Server = to
	for _, p := range append(w.proxies(), vip) {
		err = errors.Join(err, p.Redirect(to.DSN()))
		p.CutAll()
	}
	return err
}

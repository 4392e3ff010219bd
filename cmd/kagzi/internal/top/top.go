// Package top is the live view of kagzi top.
package top

import (
	"context"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/health"
)

// A Snapshot is what the view shows of one moment.
type Snapshot struct {
	Health   health.Report
	Stats    admin.Stats
	Workers  []admin.WorkerInfo // that are not offline
	Failures []kagzi.RunInfo    // newest first
}

// A Source reads a snapshot. The error of a database that is away is shown, and the source asked again.
type Source func(ctx context.Context) (Snapshot, error)

// loadTimeout bounds one call of a source.
const loadTimeout = 8 * time.Second

// A Config configures [New].
type Config struct {
	Source    Source
	Namespace string
	Every     time.Duration // between two snapshots
	Color     bool
	Now       func() time.Time
}

// A view is one of the tables.
type view int

const (
	queues view = iota
	workers
	failures
	checks
	views // their number
)

// A Model is the state of the view, for bubbletea.
type Model struct {
	ctx context.Context
	cfg Config

	width, height int
	view          view
	sort          [views]int // the column by which a view is sorted
	reverse       [views]bool
	offset        int  // the first row that is shown
	frozen        bool // no new snapshots are taken
	help          bool // the help is shown in place of the table

	shot   Snapshot
	at     time.Time // when shot was taken; zero: not yet
	err    error     // of the last try; nil: shot is new
	rates  rates
	reload int // the number of the chain of loads that counts: a key that thaws the view begins another one
}

// New returns the view before its first snapshot.
func New(ctx context.Context, cfg Config) *Model {
	return &Model{ctx: ctx, cfg: cfg, width: 80, height: 24}
}

type loaded struct {
	chain int
	shot  Snapshot
	err   error
	at    time.Time
}

type tick struct{ chain int }

// A beat redraws the terminal, as the age of what it shows grows while no snapshot comes.
type beat struct{}

func nextBeat() tea.Cmd { return tea.Tick(time.Second, func(time.Time) tea.Msg { return beat{} }) }

// Init takes the first snapshot.
func (m *Model) Init() tea.Cmd { return tea.Batch(m.load(), nextBeat()) }

// patience is how long a snapshot may take longer than the time between two before the figures count as old.
const patience = 3 * time.Second

// old reports whether the view shows figures although newer ones should have come.
func (m *Model) old() bool {
	if m.at.IsZero() || m.frozen {
		return false
	}
	return m.err != nil || m.cfg.Now().Sub(m.at) > m.cfg.Every+patience
}

// load returns the command that takes a snapshot.
func (m *Model) load() tea.Cmd {
	chain := m.reload
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(m.ctx, loadTimeout)
		defer cancel()
		shot, err := m.cfg.Source(ctx)
		return loaded{chain, shot, err, m.cfg.Now()}
	}
}

// Update takes over a snapshot, or does what a key says.
func (m *Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case loaded:
		if msg.chain != m.reload {
			return m, nil
		}
		if m.err = msg.err; msg.err == nil {
			m.shot, m.at = msg.shot, msg.at
			m.rates.add(msg.at, msg.shot.Workers)
		}
		return m, tea.Tick(m.cfg.Every, func(time.Time) tea.Msg { return tick{msg.chain} })
	case beat:
		return m, nextBeat()
	case tick:
		if msg.chain == m.reload && !m.frozen {
			return m, m.load()
		}
	case tea.KeyPressMsg:
		return m, m.key(msg.String())
	}
	return m, nil
}

// key does what a key says.
func (m *Model) key(name string) tea.Cmd {
	if m.help = name == "?" && !m.help; m.help {
		m.offset = 0
	}
	switch name {
	case "q", "esc", "ctrl+c":
		return tea.Quit
	case "1", "2", "3", "4":
		m.view, m.offset = view(name[0]-'1'), 0
	case "tab", "right", "l":
		m.view, m.offset = (m.view+1)%views, 0
	case "shift+tab", "left", "h":
		m.view, m.offset = (m.view+views-1)%views, 0
	case "s":
		m.sort[m.view], m.offset = (m.sort[m.view]+1)%len(sorts[m.view]), 0
	case "r":
		m.reverse[m.view] = !m.reverse[m.view]
	case "down", "j":
		m.offset++
	case "up", "k":
		m.offset--
	case "pgdown":
		m.offset += m.rows()
	case "pgup":
		m.offset -= m.rows()
	case "home", "g":
		m.offset = 0
	case "p", "space":
		if m.frozen = !m.frozen; !m.frozen {
			m.reload++
			return m.load()
		}
	}
	return nil
}

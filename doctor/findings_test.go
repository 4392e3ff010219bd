package doctor

import (
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi/store/inspect"
)

// wantOnly fails the test unless found has one advice, on the topic, with the severity, whose line has all of the
// texts.
func wantOnly(t *testing.T, found []Advice, topic string, severity Severity, texts ...string) {
	t.Helper()
	if len(found) != 1 || found[0].Topic != topic || found[0].Severity != severity {
		t.Errorf("found %v; want one %s about %s", found, severity, topic)
		return
	}
	for _, text := range texts {
		if line := found[0].String(); !strings.Contains(line, text) {
			t.Errorf("%q does not contain %q", line, text)
		}
	}
}

func TestFindings(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		check    func(*examination)
		topic    string
		severity Severity
		texts    []string
	}{
		{"Idle", func(e *examination) {
			e.addSession(inspect.Session{
				PID: 7, User: "app", App: "shop", Open: time.Hour, Idle: time.Minute,
				Query: "SELECT\n1",
			})
		}, "idle transactions", Warning, []string{
			"pg_terminate_backend(7)", `"app" (shop)`, "60 seconds",
			"SELECT; 1",
		}},
		{
			"IdleForHours", func(e *examination) { e.addSession(inspect.Session{Idle: 2 * time.Hour}) },
			"idle transactions",
			Problem,
			[]string{"2 hours"},
		},
		{
			"Snapshot", func(e *examination) {
				e.addSession(inspect.Session{
					PID: 7, Open: 10 * time.Minute,
					XIDAge: 5,
				})
			},
			"snapshots", Warning,
			[]string{"10 minutes", "5 transactions"},
		},
		{
			"SnapshotOfHours", func(e *examination) { e.addSession(inspect.Session{Open: 3 * time.Hour, XIDAge: 5}) },
			"snapshots", Problem, nil,
		},
		{
			"Standby", func(e *examination) { e.addSession(inspect.Session{State: "walsender", XIDAge: 2_000_000}) },
			"snapshots", Warning,
			[]string{"hot_standby_feedback"},
		},
		{
			"HiddenSnapshot", func(e *examination) { e.addSession(inspect.Session{PID: 7, XIDAge: 2_000_000}) },
			"snapshots",
			Warning,
			[]string{"pg_terminate_backend(7)"},
		},
		{
			"Prepared", func(e *examination) { e.addPrepared(inspect.Prepared{GID: "it's", Age: time.Hour}) },
			"snapshots",
			Problem,
			[]string{"ROLLBACK PREPARED 'it''s'", "60 minutes"},
		},
		{
			"Slot", func(e *examination) { e.addSlot(inspect.Slot{Name: "old", XIDAge: 2_000_000}) },
			"snapshots", Warning,
			[]string{"pg_drop_replication_slot('old')", "2000000 transactions"},
		},
		{
			"SlotWithLog", func(e *examination) { e.addSlot(inspect.Slot{Name: "old", WALBytes: 20 << 30}) },
			"snapshots",
			Warning,
			[]string{"20 GiB"},
		},
		{
			"Clock", func(e *examination) { e.addClock(-3*time.Second, time.Millisecond) }, "clock", Warning,
			[]string{"3s behind", "NTP"},
		},
		{
			"ClockByASlowLine", func(e *examination) { e.addClock(2*time.Second, 4*time.Second) }, "clock", Fine,
			[]string{"2s ahead of this process's, give or take 2s"},
		},
		{
			"ClocksAgree", func(e *examination) { e.addClock(-time.Microsecond, 9*time.Microsecond) }, "clock", Fine,
			[]string{"clock and this process's agree."},
		},
		{
			"ClocksAgreeAbout", func(e *examination) { e.addClock(0, 2*time.Millisecond) }, "clock", Fine,
			[]string{"agree, give or take 1ms."},
		},
		{"OldServer", func(e *examination) {
			e.server = inspect.Server{Encoding: "UTF8", Version: 130001, VersionText: "13.1"}
			e.checkServer()
		}, "server", Problem, []string{"Postgres 14 to 18", "13.1"}},
		{"NewServer", func(e *examination) {
			e.server = inspect.Server{Encoding: "UTF8", Version: 190001, VersionText: "19.1"}
			e.checkServer()
		}, "server", Warning, []string{"19.1"}},
		{"OtherEncoding", func(e *examination) {
			e.server = inspect.Server{Encoding: "LATIN1", Version: 150001}
			e.checkServer()
		}, "server", Problem, []string{"LATIN1", "ENCODING 'UTF8'"}},
		{"StandbyServer", func(e *examination) {
			e.server = inspect.Server{Encoding: "UTF8", Version: 150001, Standby: true}
			e.checkServer()
		}, "server", Problem, []string{"target_session_attrs"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := &examination{}
			tt.check(e)
			wantOnly(t, e.found, tt.topic, tt.severity, tt.texts...)
		})
	}
	for _, s := range []inspect.Session{
		{Open: 4 * time.Minute, XIDAge: 5},
		{Open: time.Hour},
		{Idle: 29 * time.Second, Open: time.Minute},
		{State: "walsender", XIDAge: 1000},
	} {
		e := &examination{}
		if e.addSession(s); len(e.found) != 0 {
			t.Errorf("%+v: %v", s, e.found)
		}
	}
	e := &examination{}
	e.addPrepared(inspect.Prepared{Age: time.Minute})
	e.addSlot(inspect.Slot{Active: true, WALBytes: 20 << 30})
	e.addSlot(inspect.Slot{WALBytes: 1 << 20, XIDAge: 1000})
	if len(e.found) != 0 {
		t.Errorf("found %v", e.found)
	}
}

// A finding about a node's part of a table names the node.
func TestFindingsAboutNodes(t *testing.T) {
	t.Parallel()
	e := &examination{}
	e.addTables("node-2:5432",
		[]inspect.Table{{Name: "signals", Live: 10, Dead: 2 * manyRows, Autovacuum: true, Analyzed: true}})
	wantOnly(t, e.found, "tables", Warning, "kagzi.signals on node-2:5432 has 40000 dead rows beside 10 live ones",
		"VACUUM (ANALYZE, VERBOSE) kagzi.signals;")
}

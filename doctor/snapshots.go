package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/store/inspect"
)

const (
	oldTransaction     = 5 * time.Minute // from this age on it is worth a warning
	veryOldTransaction = time.Hour       // from this age on it is a problem
	longIdle           = 30 * time.Second
	oldXIDs            = 1_000_000 // transactions: from this age on a snapshot is old, if its age in time is not known
	muchWAL            = 10 << 30  // bytes
)

// snapshots checks for transactions, prepared transactions and replication slots that keep vacuum from removing dead
// rows: each dead row makes reading the queue slower.
func (e *examination) snapshots(ctx context.Context) error {
	sessions, hidden, err := inspect.OpenSessions(ctx, e.db)
	if err != nil {
		return err
	}
	var oldest time.Duration
	for _, s := range sessions {
		e.addSession(s)
		if s.XIDAge > 0 {
			oldest = max(oldest, s.Open)
		}
	}
	if hidden > 0 {
		do := fmt.Sprintf("GRANT pg_read_all_stats TO %s;", quote(e.server.User))
		for _, topic := range []string{"snapshots", "idle transactions"} {
			e.add(topic, Unseen, do, "%d sessions of other users cannot be seen.", hidden)
		}
	}
	if err := e.otherHorizons(ctx); err != nil {
		return err
	}
	e.addFine("snapshots", "The oldest transaction that keeps dead rows is %s old.", duration.About(oldest))
	e.addFine("idle transactions", "No session has been idle in a transaction for %s.", duration.About(longIdle))
	return nil
}

// addSession adds an advice if a session has been in its transaction for too long.
func (e *examination) addSession(s inspect.Session) {
	who := fmt.Sprintf("Session %d of user %s", s.PID, quote(s.User))
	if s.App != "" {
		who += " (" + s.App + ")"
	}
	query := text.OneLine(s.Query)
	end := fmt.Sprintf("SELECT pg_terminate_backend(%d);", s.PID)
	switch {
	case s.Idle > longIdle:
		severity := Warning
		if s.Idle > veryOldTransaction {
			severity = Problem
		}
		e.add("idle transactions", severity, end+" Then find out why the application leaves it open, and set "+
			"idle_in_transaction_session_timeout for its user.",
			"%s has been idle in a transaction for %s, after: %s.", who, duration.About(s.Idle), query)
	case s.XIDAge > 0 && s.Open > oldTransaction:
		severity := Warning
		if s.Open > veryOldTransaction {
			severity = Problem
		}
		e.add("snapshots", severity, end+" Run long reports on a standby without hot_standby_feedback.",
			"%s has had a transaction open for %s, and autovacuum cannot remove rows that died since (%d "+
				"transactions): %s.", who, duration.About(s.Open), s.XIDAge, query)
	case s.XIDAge > oldXIDs && s.State != "walsender": // another user's session, whose times this user may not see
		e.add("snapshots", Warning, end, "%s keeps vacuum from removing the dead rows of the last %d transactions.",
			who, s.XIDAge)
	case s.XIDAge > oldXIDs:
		e.add("snapshots", Warning, "Set hot_standby_feedback = off on that standby, or end the transaction that "+
			"runs there.",
			"%s, a %s, keeps vacuum from removing the dead rows of the last %d transactions.", who, s.State, s.XIDAge)
	}
}

// otherHorizons checks prepared transactions and replication slots. They hold snapshots, too, and outlive sessions.
func (e *examination) otherHorizons(ctx context.Context) error {
	prepared, err := inspect.PreparedTransactions(ctx, e.db)
	if err != nil {
		return err
	}
	for _, p := range prepared {
		e.addPrepared(p)
	}
	slots, err := inspect.Slots(ctx, e.db)
	if err != nil {
		return err
	}
	for _, s := range slots {
		e.addSlot(s)
	}
	return nil
}

// addPrepared adds an advice if a prepared transaction is old.
func (e *examination) addPrepared(p inspect.Prepared) {
	if p.Age <= oldTransaction {
		return
	}
	gid := "'" + strings.ReplaceAll(p.GID, "'", "''") + "'"
	e.add("snapshots", Problem, "COMMIT PREPARED "+gid+"; or ROLLBACK PREPARED "+gid+";",
		"The prepared transaction %s has waited to be committed or rolled back for %s, and autovacuum cannot remove "+
			"rows that died since.", gid, duration.About(p.Age))
}

// addSlot adds an advice if a replication slot keeps dead rows or much WAL.
func (e *examination) addSlot(s inspect.Slot) {
	// a name has no quotes
	drop := fmt.Sprintf("If nothing uses it any more: SELECT pg_drop_replication_slot('%s');", s.Name)
	switch {
	case s.XIDAge > oldXIDs:
		e.add("snapshots", Warning, drop, "The replication slot %s (active: %t) keeps vacuum from removing the dead "+
			"rows of the last %d transactions.", s.Name, s.Active, s.XIDAge)
	case !s.Active && s.WALBytes > muchWAL:
		e.add("snapshots", Warning, drop, "The replication slot %s is not in use and keeps %d GiB of WAL: the "+
			"disk fills.", s.Name, s.WALBytes>>30)
	}
}

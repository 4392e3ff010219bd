package kagzi

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/notify"
	"github.com/kagzi/kagzi/store"
)

// A Reason says why a run is changed. It is kept with the event: see [Client.Events]. Control characters are replaced,
// and of more than 1 KiB the end is left out.
type Reason string

// maxReason is how many bytes of a reason are kept.
const maxReason = 1 << 10

func (r Reason) text() string { return sanitizeText(string(r), maxReason) }

// changeConfig is what a change's options say.
type changeConfig struct {
	tx     pgx.Tx
	reason string
}

func changeOptions(opts []ChangeOption) (changeConfig, error) {
	var cfg changeConfig
	for _, o := range opts {
		switch o := o.(type) {
		case inTx:
			cfg.tx = o.tx
			if o.tx == nil {
				return cfg, errNilTx
			}
		case Reason:
			cfg.reason = o.text()
		case nil:
			return cfg, errNilOption
		}
	}
	return cfg, nil
}

// changeTx is changeOptions for what has no events to keep a reason with.
func changeTx(opts []ChangeOption) (pgx.Tx, error) {
	cfg, err := changeOptions(opts)
	return cfg.tx, err
}

// announceWork tells workers that a run is due: with tx's commit, or now.
func (c *Client) announceWork(ctx context.Context, tx pgx.Tx, queue, typ string, version int) error {
	if tx != nil {
		return notify.NotifyTx(ctx, tx, notify.WorkChannel, notify.WorkPayload(c.cfg.Namespace, queue))
	}
	c.wakeWork(ctx, queue, typ, version, 1)
	return nil
}

// A RunEventKind says what was done to a run.
type RunEventKind string

// Events of runs.
const (
	RunEventCancelled  RunEventKind = store.EventCancelled
	RunEventTerminated RunEventKind = store.EventTerminated
	RunEventResumed    RunEventKind = store.EventResumed
	RunEventRestarted  RunEventKind = store.EventRestarted // both the old run and the new one have it
	RunEventForked     RunEventKind = store.EventForked    // both the old run and the new one have it
)

// A RunEvent is an entry of a run's history beside its steps: what was done to it from outside.
type RunEvent struct {
	Event  RunEventKind
	Other  RunID  // of RESTARTED and FORKED: which run it became, or comes from (RunInfo.Origin)
	Step   string // of FORKED: from which step on
	Reason string // that the caller gave
	At     time.Time
}

// Events returns what was done to a run, oldest first: that it was resumed, restarted and so on. It returns
// [ErrRunNotFound] if the client's namespace has no such run. Events are deleted with their run.
func (c *Client) Events(ctx context.Context, ref Ref) ([]RunEvent, error) {
	id, err := c.resolve(ctx, nil, ref)
	if err == nil {
		_, err = c.store.Run(ctx, id)
	}
	var rows []store.RunEvent
	if err == nil {
		rows, err = c.store.RunEvents(ctx, id)
	}
	if err != nil {
		return nil, failed(public(err), "events of %v", ref)
	}
	events := make([]RunEvent, len(rows))
	for i, e := range rows {
		events[i] = RunEvent{Event: RunEventKind(e.Event), Step: e.Step, Reason: e.Reason, At: e.At}
		if e.Other != uuid.Nil {
			events[i].Other = RunID(e.Other.String())
		}
	}
	return events, nil
}

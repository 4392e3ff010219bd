package notify

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// The channels: WorkChannel for due work, by namespace and queue, RunChannel for changed runs, by namespace, and
// LeadChannel for what the coordinators that lead say, in words that this package does not know.
const (
	WorkChannel = "kagzi_work"
	RunChannel  = "kagzi_run"
	LeadChannel = "kagzi_lead"
)

const (
	maxPayload = 7999 // bytes; Postgres refuses more
	maxRuns    = 200  // IDs of one payload: 7,400 bytes of it
	idLen      = 36 + 1
)

// WorkPayload returns the payload for WorkChannel that says that work of queue is due.
func WorkPayload(namespace, queue string) string {
	return namespace + ":" + queue
}

// RunPayload returns the payloads for RunChannel that say that the runs ids got wake-ups, were cancelled or ended. Each
// has at most 200 IDs, or fewer if the namespace's name is so long that they would not fit.
func RunPayload(namespace string, ids []uuid.UUID) []string {
	each := max(1, min(maxRuns, (maxPayload-len(namespace))/idLen))
	payloads := make([]string, 0, (len(ids)+each-1)/each)
	for len(ids) > 0 {
		n := min(each, len(ids))
		var b strings.Builder
		b.Grow(len(namespace) + n*idLen)
		b.WriteString(namespace)
		for i, id := range ids[:n] {
			b.WriteByte(":,"[min(i, 1)])
			b.WriteString(id.String())
		}
		payloads = append(payloads, b.String())
		ids = ids[n:]
	}
	return payloads
}

// parseRuns parses a payload of RunPayload. It returns no IDs for a payload that is not ours.
func parseRuns(payload string) (namespace string, ids []uuid.UUID) {
	// The last colon: a namespace may hold some, an ID never does.
	colon := strings.LastIndexByte(payload, ':')
	if colon < 0 {
		return "", nil
	}
	for s := range strings.SplitSeq(payload[colon+1:], ",") {
		id, err := uuid.Parse(s)
		if err != nil {
			return "", nil
		}
		ids = append(ids, id)
	}
	return payload[:colon], ids
}

const notifyAll = `SELECT pg_notify(c, p) FROM unnest($1::text[], $2::text[]) AS u(c, p)`

// NotifyTx sends payloads on channel when tx commits, and never if it does not. No two transactions of a database that
// notify can commit at the same time, so frequent ones use a Publisher after their commit instead.
func NotifyTx(ctx context.Context, tx pgx.Tx, channel string, payloads ...string) error {
	channels := make([]string, len(payloads))
	for i := range channels {
		channels[i] = channel
	}
	if _, err := tx.Exec(ctx, notifyAll, channels, payloads); err != nil {
		return fmt.Errorf("notify %s: %w", channel, err)
	}
	return nil
}

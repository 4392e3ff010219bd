package store

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

// An answerHead has what the headers of a message with an answer say. The payload is the answer's Output.
type answerHead struct {
	State    string `json:"state"`
	Kind     string `json:"kind,omitempty"`
	Error    string `json:"error,omitempty"`
	Run      string `json:"run,omitempty"`
	Workflow string `json:"workflow,omitempty"`
	Status   string `json:"status,omitempty"`
	Is       string `json:"is,omitempty"`
}

// answerStates are the texts of the states in which a request is open no longer.
var answerStates = map[AnswerState]string{
	AnswerReplied: "replied", AnswerRefused: "refused", AnswerSetAside: "set aside", AnswerRunOver: "run is over",
	AnswerNoRun: "no run", AnswerExpired: "expired", AnswerNotSent: "not sent",
}

// Message returns the message by which a run gets the answer to the request of one of its steps; false if replyTo names
// none. A run gets one such message for each step: the first one that is sent.
func (a *Answer) Message(replyTo string) (m Message, ok bool) {
	run, step, ok := strings.Cut(replyTo, "/")
	id, err := uuid.Parse(run)
	if !ok || err != nil {
		return m, false
	}
	return Message{RunID: id, Name: AnswerName(step), ID: AnswerName(step), Payload: a.Output, Headers: a.head()}, true
}

// head returns the headers of a message with the answer.
func (a *Answer) head() json.RawMessage {
	head := answerHead{State: answerStates[a.State], Kind: a.ErrorKind, Error: a.Error, Is: a.Is}
	if a.RunID != uuid.Nil {
		head.Run = a.RunID.String()
	}
	if a.State == AnswerRunOver {
		head.Kind, head.Error = a.End.ErrorKind, a.End.Error
		head.Workflow, head.Status = a.End.Type, a.End.Status
	}
	headers, _ := json.Marshal(head) // of valid texts
	return headers
}

// AnswerOf is the inverse of Message: it returns the answer of a message with these headers.
func AnswerOf(headers json.RawMessage, payload []byte) (a Answer) {
	var head answerHead
	_ = json.Unmarshal(headers, &head) // written by Message
	for state, name := range answerStates {
		if name == head.State {
			a.State = state
		}
	}
	a.RunID, _ = uuid.Parse(head.Run)
	a.Output, a.ErrorKind, a.Error, a.Is = payload, head.Kind, head.Error, head.Is
	a.End = Ended{
		RunID: a.RunID, Type: head.Workflow, Status: head.Status, ErrorKind: head.Kind, Error: head.Error,
	}
	return a
}

const repliesTo = `
SELECT g.run_id, g.sequence, g.signal_id, g.reply_to
FROM unnest($2::uuid[], $3::text[], $4::bigint[]) AS u (run_id, name, sequence)
CROSS JOIN LATERAL (
	SELECT s.run_id, s.sequence, s.signal_id, s.reply_to
	FROM kagzi.signals s
	WHERE s.run_id = u.run_id AND s.name = u.name AND s.sequence = u.sequence AND s.namespace_id = $1
	OFFSET 0
) g`

// Replies returns the messages for those of the askers that are runs. It reads who has asked for the answers of which
// that is not known, and what became of the requests that were open. It changes answers.
func (s Messages) Replies(ctx context.Context, answers []Answer) (messages []Message, err error) {
	err = pg.Wrap("find askers", s.findAskers(ctx, answers)) // those that are known get theirs all the same
	var open []RequestKey
	askers := map[RequestKey]string{}
	for i := range answers {
		a := &answers[i]
		if m, ok := a.Message(a.Asked.ReplyTo); ok && a.State != AnswerOpen {
			messages = append(messages, m)
		} else if ok {
			open = append(open, a.RequestKey)
			askers[a.RequestKey] = a.Asked.ReplyTo
		}
	}
	if len(open) == 0 {
		return messages, err
	}
	decided, failed := s.Answers(ctx, open, 0)
	for i := range decided {
		if m, ok := decided[i].Message(askers[decided[i].RequestKey]); ok {
			messages = append(messages, m)
		}
	}
	return messages, errors.Join(err, failed)
}

// findAskers reads those who have asked for the answers of which that is not known.
func (s Messages) findAskers(ctx context.Context, answers []Answer) error {
	type key struct {
		run      uuid.UUID
		sequence int64
	}
	unknown := map[key]*Answer{}
	var runs []uuid.UUID
	var names []string
	var sequences []int64
	for i := range answers {
		if a := &answers[i]; a.Asked.ID == "" {
			unknown[key{a.RunID, a.Sequence}] = a
			runs, names, sequences = append(runs, a.RunID), append(names, a.Asked.Name), append(sequences, a.Sequence)
		}
	}
	if len(runs) == 0 {
		return nil
	}
	return pg.Do(ctx, func(ctx context.Context) error {
		return pg.Ask(ctx, s.pool, repliesTo, []any{s.namespace, array(runs), names, sequences},
			func(rows pgx.Rows) error {
				var k key
				var id string
				var to *string
				_, err := pgx.ForEachRow(rows, []any{&k.run, &k.sequence, &id, &to}, func() error {
					if a := unknown[k]; a != nil {
						a.ID, a.Asked.ReplyTo = id, pg.Deref(to)
					}
					return nil
				})
				return err
			})
	})
}

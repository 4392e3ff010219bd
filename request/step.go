package request

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/replay"
	"github.com/kagzi/kagzi/internal/valid"
	"github.com/kagzi/kagzi/store"
)

// AskStep is [Ask] for a workflow function: a step named name, whose answer is recorded. The rules of [kagzi.Step]'s
// names apply. While it waits, the run holds no goroutine, slot or connection.
//
// With a [kagzi.Timeout], AskStep returns a *[kagzi.StepError] of [kind.Timeout] if no answer came in time. That is
// recorded, too, and the request stays open. Whatever error AskStep returns is the same in every replay.
//
// A request that the database refuses for a time, such as one to a full inbox, is sent again until it is stored.
func AskStep[Out any](ctx kagzi.Context, name string, to Target, q Question[Out],
	timeout ...kagzi.Timeout,
) (out Out, err error) {
	b, client, err := branchOf(ctx)
	if err != nil {
		return out, err
	}
	limit, invalid := core.WaitTimeout(timeout)
	a := asker{client: client, to: to, message: q.message, run: string(ctx.RunID())}
	row, err := b.Receive(replay.SignalSpec{
		Kind: store.KindAsk, Step: name, BadName: valid.StepName("ask", name), Invalid: cmp.Or(invalid, a.invalid()),
		Timeout: limit, Ask: a.ask, Within: q.message.Core().Within,
		Decode: func([]byte, bool) error { return nil }, // an answer that does not decode is the asker's failure
	})
	if err != nil {
		return out, err
	}
	answer := store.AnswerOf(row.Input, row.Output)
	if err := decode(client.Core(), &answer, q.name(), &out, replay.WrongDetails(b, row.StepID)); err != nil {
		return out, failure.Wrap(err, "ask %v for %q in %q", core.RefOf(to), q.name(), row.StepID)
	}
	return out, nil
}

// An asker asks from a workflow.
type asker struct {
	client  *kagzi.Client
	to      Target
	message kagzi.Message
	run     string // that asks
}

// invalid returns why the call is wrong.
func (a *asker) invalid() error {
	m := a.message.Core()
	if m.Decodable == nil || m.Refused != nil { // a refusal follows from data: it is an answer
		return nil
	}
	if at := core.RefOf(a.to); !at.Given {
		return errors.New("kagzi: the reference is nil: pass a kagzi.RunID, a kagzi.ID, the run itself or a Call")
	}
	return m.Validate()
}

// mostFailures is how often in a row a request is refused for a reason that may be transient, before that is its
// answer.
const mostFailures = 10

// ask sends the request of the step, unless it was sent. If there is an answer already, or the request is refused, it
// sends that to the run that asks, which reads it as any other message.
func (a *asker) ask(ctx context.Context, step string, failures int) (soon bool, err error) {
	return false, a.askOnce(ctx, step, failures)
}

func (a *asker) askOnce(ctx context.Context, step string, failures int) error {
	m, by := a.message, a.run+"/"+step
	if !m.Core().Identified {
		sum := sha256.Sum256([]byte(by))
		m = m.WithID(kagzi.ID("ask:" + hex.EncodeToString(sum[:16])))
	}
	m.Core().Asker = by
	c := a.client.Core()
	key, fresh, err := send(ctx, a.client, a.to, &m, nil)
	answers := []store.Answer{{State: store.AnswerNotSent}}
	switch {
	case err != nil && kagzi.KindOf(err).Retryable() && failures < mostFailures:
		return err
	case err != nil:
		n := &answers[0]
		n.ErrorKind, n.Error, n.Is = string(kagzi.KindOf(err)), failure.Text(err), nameOf(err)
	case fresh:
		return nil
	default:
		if answers, err = c.Store.Messages.Answers(ctx, []store.RequestKey{key}, 0); err != nil {
			return err
		}
	}
	for i := range answers {
		if reply, ok := answers[i].Message(by); ok {
			return c.Hints.SendReply(ctx, reply)
		}
	}
	return nil
}

// sentinels are the errors of a request that was not sent which its asker compares with, by the names in its record.
var sentinels = map[string]error{
	"not found": kagzi.ErrNotFound, "run finished": kagzi.ErrRunFinished, "ID conflict": kagzi.ErrIDConflict,
	"ID taken": kagzi.ErrIDTaken, "inbox full": kagzi.ErrInboxFull, "key full": kagzi.ErrKeyFull,
	"too large": kagzi.ErrPayloadTooLarge,
}

// nameOf returns the name of the sentinel in err's chain, empty if there is none.
func nameOf(err error) string {
	for name, sentinel := range sentinels {
		if errors.Is(err, sentinel) {
			return name
		}
	}
	return ""
}

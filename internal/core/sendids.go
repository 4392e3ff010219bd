package core

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/google/uuid"
)

// A Sender is the attempt of a step that a context belongs to, by what it does with other runs: the messages and events
// that it sends, and the runs that it waits for.
type Sender interface {
	StepKey() string                       // the same in every attempt of the step
	Count(parts string) int                // how often it has sent something with these parts, this time included
	AwaitsRun(id uuid.UUID) (ended func()) // it waits for a run until ended is called
}

// SenderKey is the key of a context's Sender.
type SenderKey struct{}

func senderOf(ctx context.Context) (by Sender, ok bool) {
	by, ok = ctx.Value(SenderKey{}).(Sender)
	return by, ok
}

// stepKey returns the key of the step that ctx belongs to, empty outside of a step.
func stepKey(ctx context.Context) string {
	if by, ok := senderOf(ctx); ok {
		return by.StepKey()
	}
	return ""
}

// AwaitsRun notes that the step that ctx belongs to, if any, waits for a run until ended is called.
func AwaitsRun(ctx context.Context, id uuid.UUID) (ended func()) {
	if by, ok := senderOf(ctx); ok {
		return by.AwaitsRun(id)
	}
	return func() {}
}

// SendID makes the ID of what a step sends, with parts that distinguish it. It is the same in each attempt. A further
// attempt may send other things, or in another order, so they are told apart by a hash of their payload, and not by
// their position. Equal ones are counted. Outside of a step there is none, and ok is false.
func SendID(ctx context.Context, parts ...string) (id string, ok bool) {
	by, ok := senderOf(ctx)
	if !ok {
		return "", false
	}
	sent := fmt.Sprintf("%q", parts)
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %s %d", by.StepKey(), sent, by.Count(sent)))
	return "step:" + hex.EncodeToString(sum[:16]), true
}

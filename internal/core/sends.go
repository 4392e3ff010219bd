package core

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// A Sender is the attempt of a step that a context belongs to, by what it sends: messages and events.
type Sender interface {
	StepKey() string        // the same in every attempt of the step
	Count(parts string) int // how often the attempt has sent something with these parts, this time included
}

// SenderKey is the key of a context's Sender.
type SenderKey struct{}

// SendID makes the ID of what a step sends, with parts that distinguish it. It is the same in each attempt. A further
// attempt may send other things, or in another order, so they are told apart by a hash of their payload, and not by
// their position. Equal ones are counted. Outside of a step there is none, and ok is false.
func SendID(ctx context.Context, parts ...string) (id string, ok bool) {
	by, ok := ctx.Value(SenderKey{}).(Sender)
	if !ok {
		return "", false
	}
	sent := fmt.Sprintf("%q", parts)
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %s %d", by.StepKey(), sent, by.Count(sent)))
	return "step:" + hex.EncodeToString(sum[:16]), true
}

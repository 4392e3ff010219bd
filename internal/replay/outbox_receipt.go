package replay

import (
	"sync"

	"github.com/kagzi/kagzi/store"
)

// A receipt passes the outcome of a write to the goroutine that waits for it. It is used for one write after the other.
type receipt struct {
	outcome chan store.Outcome
	settled func(store.Outcome) // sends to outcome
}

// receipts has the receipts that no write uses.
var receipts = sync.Pool{New: func() any {
	outcome := make(chan store.Outcome, 1)
	return &receipt{outcome, func(o store.Outcome) { outcome <- o }}
}}

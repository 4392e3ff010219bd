package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
)

// A document has fields like those of a real one: names that come again and again, and values that do not.
type document struct {
	Rows []row
}

type row struct {
	ID, Customer, Comment string
	Amount                int
}

// documentOf returns a document of about so many bytes as JSON.
func documentOf(size int) (d document) {
	r := rand.New(rand.NewPCG(1, 2))
	for n := 0; n < size; n += 180 {
		d.Rows = append(d.Rows, row{
			ID: fmt.Sprintf("%016x%016x", r.Uint64(), r.Uint64()), Customer: fmt.Sprint("customer-", r.IntN(1000)),
			Comment: strings.Repeat("please deliver on time ", 2), Amount: r.IntN(100_000),
		})
	}
	return d
}

// megabytes returns the length of such a document as JSON.
func megabytes(size int) float64 {
	text, err := json.Marshal(documentOf(size))
	if err != nil {
		panic(err) // of strings and numbers
	}
	return float64(len(text)) / (1 << 20)
}

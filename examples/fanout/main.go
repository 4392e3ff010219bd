// Fanout divides work: a parent starts a child for each document, and wakes up once, when all have ended. The children
// are runs of their own, so any number of workers can share them.
//
//	go run ./examples/fanout
package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/examples/internal/demo"
)

var (
	CountAll = kagzi.Define[[]string, int]("count-all")
	Count    = kagzi.Define[string, int]("count")
)

func countAll(ctx kagzi.Context, documents []string) (int, error) {
	var children []*kagzi.Child[int]
	for i, document := range documents {
		child, err := kagzi.StartChild(ctx, fmt.Sprintf("count-%d", i), Count, document)
		if err != nil {
			return 0, err
		}
		children = append(children, child)
	}
	counts, err := kagzi.Results(ctx, children) // waits without a goroutine, a connection or a slot of the worker
	if err != nil {
		return 0, err
	}
	total := 0
	for _, n := range counts {
		total += n
	}
	return total, nil
}

func count(ctx kagzi.Context, document string) (int, error) {
	return kagzi.Step(ctx, "words", func(ctx context.Context) (int, error) {
		return len(strings.Fields(document)), nil
	})
}

func main() {
	handle := func(w *kagzi.Worker) {
		kagzi.Handle(w, CountAll, countAll)
		kagzi.Handle(w, Count, count)
	}
	demo.Main("fanout", handle, func(ctx context.Context, client *kagzi.Client) error {
		documents := make([]string, 100)
		for i := range documents {
			documents[i] = strings.Repeat("word ", i)
		}
		run, err := kagzi.Start(ctx, client, CountAll, documents)
		if err != nil {
			return err
		}
		total, err := run.Result(ctx)
		if err != nil {
			return err
		}
		fmt.Println("100 documents have", total, "words")
		return nil
	})
}

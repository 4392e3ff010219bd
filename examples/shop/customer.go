package main

import (
	"context"

	"github.com/kagzi/kagzi"
)

type customerKey struct{}

// withCustomer returns ctx with the customer on whose behalf something happens.
func withCustomer(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, customerKey{}, name)
}

// customerOf returns the customer of a request, a step or a child's start, empty if there is none.
func customerOf(ctx context.Context) string {
	name, _ := ctx.Value(customerKey{}).(string)
	return name
}

// carryCustomer is an interceptor by which customerOf works in steps, too: it stores the customer in the headers of the
// run that a request starts, and takes it out of them when a worker executes the run, its children and its
// compensations.
func carryCustomer() kagzi.Interceptor {
	const header = "customer"
	return kagzi.Interceptor{
		Start: func(ctx context.Context, starts []*kagzi.StartCall, next func(context.Context) error) error {
			if name := customerOf(ctx); name != "" {
				for _, s := range starts {
					s.SetHeader(header, name)
				}
			}
			return next(ctx)
		},
		Execute: func(ctx context.Context, e kagzi.Execution, next func(context.Context) error) error {
			return next(withCustomer(ctx, e.Headers[header]))
		},
	}
}

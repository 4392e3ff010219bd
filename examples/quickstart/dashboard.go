package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/kagzi/kagzi/ui"
)

// dashboard serves the dashboard of the checkouts on this machine until it is stopped, and says where.
func (s *show) dashboard(address string) (stop func() error, err error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/kagzi/", ui.Handler(s.client, ui.Config{Pool: s.pool})) // without Authorize it changes nothing
	server := &http.Server{Handler: mux}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	fmt.Printf("The dashboard: http://%s/kagzi/\n", listener.Addr())
	return func() error {
		err := server.Close()
		if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
		return err
	}, nil
}

// stayed waits until ctx ends, so that the dashboard can be looked at.
func stayed(ctx context.Context) {
	fmt.Println("The dashboard stays until Ctrl-C.")
	<-ctx.Done()
}

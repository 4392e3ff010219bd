// Command temporal runs a Temporal server for the benchmark. It keeps everything in one database of Postgres, the
// visibility of workflows included. It writes the address of its frontend to the standard output once it listens there,
// and ends when its standard input does.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/temporal"
)

func main() {
	dsn := flag.String("dsn", "", "URL of the database")
	migrate := flag.Bool("migrate", false, "first create the tables in the database, which is empty")
	flag.Parse()
	if err := run(*dsn, *migrate); err != nil {
		fmt.Fprintln(os.Stderr, "temporal:", err)
		os.Exit(1)
	}
}

func run(dsn string, migrate bool) error {
	// Ctrl-C in a terminal reaches this process, too. It still serves the benchmark, which ends in order.
	signal.Ignore(os.Interrupt)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	database, err := readDSN(dsn)
	if err != nil {
		return err
	}
	logger := log.NewZapLogger(log.BuildZapLogger(log.Config{Level: "fatal"})) // it writes to the standard error
	if err := prepare(database, migrate, logger); err != nil {
		return fmt.Errorf("prepare the database: %w", err)
	}
	ports, err := freePorts()
	if err != nil {
		return err
	}
	cfg := configuration(database, ports)
	server, err := temporal.NewServer(
		temporal.WithConfig(cfg),
		temporal.ForServices(temporal.DefaultServices),
		temporal.WithStaticHosts(hosts(ports)),
		temporal.WithDynamicConfigClient(tuning()),
		temporal.WithLogger(logger),
		temporal.WithAuthorizer(authorization.NewNoopAuthorizer()),
		temporal.WithClaimMapper(func(*config.Config) authorization.ClaimMapper {
			return authorization.NewNoopClaimMapper()
		}),
	)
	if err != nil {
		return err
	}
	if err := server.Start(); err != nil {
		return errors.Join(err, server.Stop())
	}
	fmt.Println(cfg.PublicClient.HostPort)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	select {
	case <-closed:
	case <-ctx.Done():
	}
	return server.Stop()
}

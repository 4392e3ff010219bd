// Shop is a service as one would run it: HTTP in, a worker, its own tables, and OpenTelemetry.
//
//	go run -C examples/shop .
//
// It starts a throwaway Postgres, or uses the database that DATABASE_URL names. Then it plays a customer who orders,
// pays and cancels over HTTP, and prints what happens, and the trace of the first order. With -serve it only serves.
//
// Read shop.go, which has the workflows, then http.go and store.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/localpg"
	kagziotel "github.com/kagzi/kagzi/otel"
)

func main() {
	serve := flag.Bool("serve", false, "only serve, until Ctrl-C")
	addr := flag.String("addr", "127.0.0.1:0", "where to serve")
	flag.Parse()
	slog.SetDefault(slog.New(kagziotel.Handler(slog.NewTextHandler(os.Stderr,
		&slog.HandlerOptions{Level: slog.LevelWarn}))))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Stdout, *addr, *serve)
	if err != nil && ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "shop:", err)
		os.Exit(1)
	}
}

// run opens the shop, and closes it when ctx ends or, unless serve, when the customer is done.
func run(ctx context.Context, out io.Writer, addr string, serve bool) (err error) {
	pool, closePool, err := openDatabase(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closePool()) }()

	var options []trace.TracerProviderOption
	spans := tracetest.NewInMemoryExporter()
	if !serve { // in a service it would grow for ever
		options = append(options, trace.WithSyncer(spans))
	}
	if os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" {
		exporter, err := otlptracehttp.New(ctx)
		if err != nil {
			return err
		}
		options = append(options, trace.WithBatcher(exporter))
	}
	t := telemetry(options...)
	defer func() { err = errors.Join(err, t.traces.Shutdown(context.WithoutCancel(ctx))) }()

	say := &printer{out: out}
	shop, worker, err := open(pool, t, say)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	base := "http://" + listener.Addr().String()
	say.linef("serving on %s", base)
	server := &http.Server{Handler: t.wrap(shop.Handler()), ReadHeaderTimeout: 10 * time.Second}
	return work(ctx, worker, server, listener, func(ctx context.Context) error {
		if serve {
			<-ctx.Done()
			return nil
		}
		return (&customer{base: base, name: "ada", say: say}).play(ctx, spans)
	})
}

// open makes the shop and a worker for it. A larger service has them in two programs.
func open(pool *pgxpool.Pool, t tracing, say *printer) (*Shop, *kagzi.Worker, error) {
	interceptors, err := t.interceptors()
	if err != nil {
		return nil, nil, err
	}
	client, err := kagzi.NewClient(pool, kagzi.ClientConfig{Namespace: "shop", Interceptors: interceptors})
	if err != nil {
		return nil, nil, err
	}
	worker, err := kagzi.NewWorker(client, kagzi.WorkerConfig{})
	if err != nil {
		return nil, nil, err
	}
	shop := &Shop{
		Client: client, Pool: pool, PayWithin: 24 * time.Hour, Drying: time.Second, // a real glue dries for an hour
		Pick: func(ctx context.Context, _ string) error { return pause(ctx, 700*time.Millisecond) },
		Mail: func(ctx context.Context, text string) error {
			say.linef("mail to %s: %s", customerOf(ctx), text)
			return nil
		},
		Refund: func(ctx context.Context, payment string) error {
			say.linef("refunded %s to %s", payment, customerOf(ctx))
			return nil
		},
	}
	shop.handle(worker)
	return shop, worker, nil
}

// work runs the worker and the server until fn returns, or one of them fails.
func work(ctx context.Context, worker *kagzi.Worker, server *http.Server, listener net.Listener,
	fn func(context.Context) error,
) error {
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	var workErr, serveErr error
	running.Go(func() { defer stop(); workErr = worker.Run(ctx) })
	running.Go(func() { defer stop(); serveErr = server.Serve(listener) })
	err := fn(ctx)
	stop()
	// Requests and steps under way finish. Runs that have not ended go on when the next process starts.
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	err = errors.Join(err, server.Shutdown(closing))
	running.Wait()
	if errors.Is(serveErr, http.ErrServerClosed) {
		serveErr = nil
	}
	return errors.Join(err, workErr, serveErr)
}

// openDatabase opens the database that DATABASE_URL names, or a throwaway one, with all tables.
func openDatabase(ctx context.Context) (_ *pgxpool.Pool, stop func() error, err error) {
	url, stopPostgres := os.Getenv("DATABASE_URL"), func() error { return nil }
	if url == "" {
		if url, stopPostgres, err = localpg.Open(ctx); err != nil {
			return nil, nil, err
		}
	}
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, nil, errors.Join(err, stopPostgres())
	}
	cfg.MaxConns = max(cfg.MaxConns, 20) // for the requests, and for a worker with steps in transactions
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, nil, errors.Join(err, stopPostgres())
	}
	stop = func() error { pool.Close(); return stopPostgres() }
	if err := prepare(ctx, pool); err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	return pool, stop, nil
}

// A tracing makes the spans of requests and of Kagzi.
type tracing struct {
	traces     *trace.TracerProvider
	propagator propagation.TextMapPropagator
}

func telemetry(options ...trace.TracerProviderOption) tracing {
	return tracing{trace.NewTracerProvider(options...), propagation.TraceContext{}}
}

// interceptors are those of the client: first the spans, so that they cover the others.
func (t tracing) interceptors() ([]kagzi.Interceptor, error) {
	tel, err := kagziotel.New(kagziotel.Config{TracerProvider: t.traces, Propagator: t.propagator})
	if err != nil {
		return nil, err
	}
	return []kagzi.Interceptor{tel.Interceptor(), carryCustomer()}, nil
}

// wrap makes a span of each request.
func (t tracing) wrap(h http.Handler) http.Handler {
	return otelhttp.NewHandler(h, "shop", otelhttp.WithTracerProvider(t.traces), otelhttp.WithPropagators(t.propagator))
}

// pause takes as long as a real service would.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// A program that fills a throwaway Postgres with sample data and serves the dashboard: go run ./example, then open the
// address that it prints.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/localpg"
	"github.com/kagzi/kagzi/ui"
	"github.com/kagzi/kagzi/ui/internal/demo"
)

func main() {
	var o options
	flag.StringVar(&o.addr, "addr", "127.0.0.1:8080", "where to listen")
	flag.StringVar(&o.actor, "actor", "you@example.com", "who changes things; empty makes the dashboard read-only")
	flag.BoolVar(&o.hide, "hide", false, "hide payloads")
	flag.BoolVar(&o.log, "log", false, "log what the sample workers do")
	flag.BoolVar(&o.empty, "empty", false, "without sample data")
	flag.DurationVar(&o.every, "every", 2*time.Second, "how often an order comes")
	flag.IntVar(&o.many, "many", 0, "how many runs to insert besides")
	flag.DurationVar(&o.within, "within", 30*24*time.Hour, "how long ago the first of these was started")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := serve(ctx, o); err != nil {
		log.Fatal(err)
	}
}

type options struct {
	addr, actor string
	hide, empty bool
	log         bool
	every       time.Duration
	many        int
	within      time.Duration
}

func serve(ctx context.Context, o options) (err error) {
	dsn, stop, err := localpg.Open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := kagzi.Migrate(ctx, pool); err != nil {
		return err
	}
	if o.many > 0 {
		if err := demo.Many(ctx, pool, o.many, o.within); err != nil {
			return err
		}
	}
	client, err := kagzi.NewClient(pool, kagzi.ClientConfig{})
	if err != nil {
		return err
	}
	if !o.empty {
		quiet := kagzi.ClientConfig{Logger: slog.New(slog.DiscardHandler)} // their failures would bury the address
		if o.log {
			quiet.Logger = nil
		}
		shop, err := demo.Start(ctx, pool, quiet)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, shop.Stop()) }()
		if err := shop.Fill(ctx); err != nil {
			return err
		}
		if o.every > 0 {
			go func() {
				if err := shop.Trade(ctx, o.every); err != nil {
					log.Print(err)
				}
			}()
		}
	}
	cfg := ui.Config{HidePayloads: o.hide, Pool: pool}
	if o.actor != "" {
		cfg.Authorize = func(*http.Request, ui.Action) (string, error) { return o.actor, nil }
	}
	mux := http.NewServeMux()
	mux.Handle("/kagzi/", ui.Handler(client, cfg))
	server := &http.Server{
		Addr: o.addr, Handler: mux, ReadHeaderTimeout: 5 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	context.AfterFunc(ctx, func() {
		log.Print("Stopping, within 30 s: steps under way may end")
		_ = server.Close()
	})
	log.Printf("The dashboard is at http://%s/kagzi/", cmp.Or(o.addr, "localhost"))
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

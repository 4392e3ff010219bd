// Package worker is the worker process of chaos.
package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/testhook"

	"github.com/kagzi/kagzi/chaos/internal/evidence"
	"github.com/kagzi/kagzi/chaos/internal/fleet"
	"github.com/kagzi/kagzi/chaos/internal/load"
)

// Main is the program of a worker process, whose Spec is in the environment. It returns the exit code.
func Main(text string) int {
	if err := run(text); err != nil {
		fmt.Fprintln(os.Stderr, "worker process:", err)
		return 1
	}
	return 0
}

func run(text string) error {
	var spec fleet.Spec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return err
	}
	ledger, err := evidence.OpenLedger(spec.Ledger, spec.Name)
	if err != nil {
		return err
	}
	p := &process{spec: spec, ledger: ledger}
	p.write(evidence.Started, fmt.Sprint(os.Getpid()))
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends with the driver
		os.Exit(3)
	}()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	before := runtime.NumGoroutine()
	err = p.serve(ctx)
	if err != nil {
		p.write(evidence.Stopped, "error: "+err.Error())
		return err
	}
	p.write(evidence.Stopped, fmt.Sprintf("goroutines: %d", leftOver(before)))
	return nil
}

// leftOver returns how many goroutines more than before there are, once they had time to end.
func leftOver(before int) int {
	for deadline := time.Now().Add(2 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if runtime.NumGoroutine() <= before {
			return 0
		}
	}
	return runtime.NumGoroutine() - before
}

// A process is a worker process.
type process struct {
	spec   fleet.Spec
	ledger *evidence.Ledger
	hits   atomic.Int64
}

func (p *process) write(event, detail string) {
	p.ledger.Write(evidence.Line{Event: event, Detail: detail})
}

func (p *process) serve(ctx context.Context) error {
	if p.spec.Routed || p.spec.Move != nil {
		return p.serveBoth(ctx)
	}
	pool, err := p.pool(ctx, p.spec.DSN)
	if err != nil {
		return err
	}
	defer pool.Close()
	c, err := kagzi.NewClient(pool,
		kagzi.ClientConfig{RunEvents: true, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		return err
	}
	if p.spec.Coordinate {
		k, err := kagzi.NewCoordinator(c, p.spec.Config.Coordinator)
		if err != nil {
			return err
		}
		return k.Run(ctx)
	}
	w, err := kagzi.NewWorker(c, p.spec.Config)
	if err != nil {
		return err
	}
	p.register(w)
	return p.watched(ctx, w.Run)
}

// register gives a worker its handlers.
func (p *process) register(w *kagzi.Worker) {
	h := &load.Handler{Ledger: p.ledger, Dir: filepath.Dir(p.spec.Ledger), Reach: p.reach}
	h.Register(w, max(p.spec.Version, 1))
}

// watched calls run, and meanwhile writes down what its sessions do.
func (p *process) watched(ctx context.Context, run func(context.Context) error) error {
	var telling sync.WaitGroup
	ctx2, told := context.WithCancel(context.Background())
	var mu sync.Mutex
	var sessions []testhook.Session
	leases := func() (all []uuid.UUID) {
		mu.Lock()
		defer mu.Unlock()
		for _, s := range sessions {
			all = append(all, s.Leases()...)
		}
		return all
	}
	err := run(testhook.With(ctx, &testhook.Hooks{
		Point: func(point string, _ uuid.UUID) { p.reach(point) },
		Begun: func(s testhook.Session) {
			p.write(evidence.Online, s.Worker().String())
			mu.Lock()
			defer mu.Unlock()
			if sessions = append(sessions, s); len(sessions) == 1 {
				telling.Go(func() { p.tellState(ctx2, leases) })
			}
		},
	}))
	told()
	telling.Wait()
	return err
}

func (p *process) pool(ctx context.Context, dsn string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = p.spec.Conns
	cfg.ConnConfig.Tracer = kit.Refusals(func(write string) { p.write(evidence.Refused, write) })
	if p.spec.Move != nil {
		cfg.ConnConfig.Tracer = statements{p.reach}
	}
	cfg.ConnConfig.RuntimeParams["application_name"] = p.spec.Name // so the audit knows who made a change
	return pgxpool.NewWithConfig(ctx, cfg)
}

// reach does what the Spec says when the code comes to its point for the nth time.
func (p *process) reach(point string) {
	if p.spec.Signal == 0 || point != p.spec.Point || p.hits.Add(1) != int64(p.spec.Nth) {
		return
	}
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	p.write(evidence.Point, point)
	_ = syscall.Kill(os.Getpid(), p.spec.Signal)
	<-continued // the signal takes effect when the process's other threads see it
	signal.Stop(continued)
}

// tellState writes the leases of the runs that the worker executes, and the process's gauges, into files, every tenth
// of a second.
func (p *process) tellState(ctx context.Context, held func() []uuid.UUID) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	file, gauges := fleet.HeldFile(p.spec.Ledger), fleet.GaugesFile(p.spec.Ledger)
	heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	for {
		select {
		case <-ctx.Done():
			_ = os.Remove(file)
			_ = os.Remove(gauges)
			return
		case <-tick.C:
		}
		var leases strings.Builder
		for _, lease := range held() {
			leases.WriteString(lease.String() + "\n")
		}
		metrics.Read(heap)
		replace(file, leases.String())
		replace(gauges, fmt.Sprintln(runtime.NumGoroutine(), heap[0].Value.Uint64()))
	}
}

// replace changes a file at once, so that its readers see the old text or the new one.
func replace(file, text string) {
	if os.WriteFile(file+".new", []byte(text), 0o600) == nil {
		_ = os.Rename(file+".new", file)
	}
}

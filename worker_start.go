package kagzi

import (
	"context"
	"sync"
)

// A background is a call of Run that [Worker.Start] has begun.
type background struct {
	stop  context.CancelFunc
	begun chan struct{} // closed when the worker has registered
	done  chan struct{} // closed when Run has returned
	err   error         // of Run. Set before done is closed.
}

// Start is Run in the background: it returns nil once the worker has registered, and executes runs until [Worker.Stop].
// An error is one of [Worker.Run]'s.
//
// ctx bounds the start alone. While the database does not answer, Start tries again; if ctx ends before the worker has
// registered, Start returns its cause, and the worker does not run.
func (w *Worker) Start(ctx context.Context) error {
	if err := w.made(); err != nil {
		return err
	}
	b := &background{begun: make(chan struct{}), done: make(chan struct{})}
	ctxOfRun, stop := context.WithCancel(context.WithoutCancel(ctx))
	b.stop = stop
	go func() {
		defer close(b.done)
		defer stop()
		b.err = w.run(ctxOfRun, sync.OnceFunc(func() { close(b.begun) }))
	}()
	select {
	case <-b.begun:
	case <-b.done:
		select {
		case <-b.begun: // and another program has drained it at once
		default:
			return b.err
		}
	case <-ctx.Done():
		stop()
		<-b.done
		return context.Cause(ctx)
	}
	w.background.Store(b)
	return nil
}

// Stop ends what [Worker.Start] began: the worker claims no more, lets runs under way finish for DrainTimeout, and
// gives the rest back. Stop returns when that is done, and returns the error of [Worker.Run]: nil as a rule. A worker
// that was not started, or that has stopped, needs no Stop.
//
// If ctx ends first, Stop returns its cause, and the worker goes on stopping.
func (w *Worker) Stop(ctx context.Context) error {
	if err := w.made(); err != nil {
		return err
	}
	b := w.background.Load()
	if b == nil {
		return nil
	}
	b.stop()
	select {
	case <-b.done:
		return b.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Done returns a channel that is closed when the worker that [Worker.Start] has started has stopped: because of Stop,
// because another program drained it, or because its pool was closed. Stop returns the error.
func (w *Worker) Done() <-chan struct{} {
	if w == nil {
		return nil
	}
	if b := w.background.Load(); b != nil {
		return b.done
	}
	return nil
}

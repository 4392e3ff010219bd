package driver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/chaos/internal/evidence"
	"github.com/kagzi/kagzi/chaos/internal/fleet"
	"github.com/kagzi/kagzi/chaos/internal/load"
	"github.com/kagzi/kagzi/namespaces"
	"github.com/kagzi/kagzi/request"
)

// Customers start runs, send them messages, change them, and wait for their results. Each has one job at a time.
type customers struct {
	office
	seed   uint64
	poison int
	next   atomic.Int64
	bursts atomic.Int64 // jobs of bursts so far
	shut   atomic.Bool  // no new jobs

	forgetful bool // the server may lose what it has acknowledged

	mu    sync.Mutex
	calls []evidence.Call
}

// An office is where customers reach their namespace, also after it has moved.
type office struct {
	namespace string
	number    int // of the namespace, of so many
	of        int
	routes    *fleet.Routes
	pools     []*pgxpool.Pool // in the order of fleet.Databases
	clients   []*kagzi.Client
}

func (o *office) client() *kagzi.Client { return o.clients[o.routes.Of(o.namespace)] }

// The patience of a customer with one call.
const callTimeout = 5 * time.Second

// definite are the errors that say that a call had no effect.
var definite = []error{
	kagzi.ErrNotFound, kagzi.ErrRunFinished, kagzi.ErrRunActive, admin.ErrNotWaiting, admin.ErrRunNeeded,
	admin.ErrCompensated,
	kagzi.ErrIDTaken, kagzi.ErrIDConflict, kagzi.ErrKeyFull, kagzi.ErrPayloadTooLarge,
}

// call makes a call and records it.
func (c *customers) call(ctx context.Context, call *evidence.Call, do func(context.Context) error) evidence.Outcome {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	call.Began = evidence.Now()
	err := do(ctx)
	for errors.Is(err, namespaces.ErrMoved) && sleep(ctx, 50*time.Millisecond) { // it had no effect
		call.Run, call.New = "", ""
		err = do(ctx)
	}
	call.Ended = evidence.Now()
	call.Outcome = evidence.OK
	if err != nil {
		call.Outcome, call.Error = evidence.Unknown, err.Error()
		for _, known := range definite {
			if errors.Is(err, known) {
				call.Outcome = evidence.Failed
			}
		}
	}
	c.mu.Lock()
	c.calls = append(c.calls, *call)
	c.mu.Unlock()
	return call.Outcome
}

// insist repeats a call that can be repeated, until its outcome is known.
func (c *customers) insist(ctx context.Context, call evidence.Call, do func(context.Context) error) evidence.Call {
	for {
		call.Error, call.New = "", ""
		if c.call(ctx, &call, do) != evidence.Unknown || !sleep(ctx, 50*time.Millisecond) {
			return call
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// serve does jobs until the customers are shut, as customer number.
func (c *customers) serve(ctx context.Context, number int) {
	for ctx.Err() == nil && !c.shut.Load() {
		n := int(c.next.Add(1))
		job := load.Job{Seed: c.seed, N: n}
		if n%40 == 7 && n/40 < c.poison {
			job.Kind = "poison"
		}
		c.do(ctx, number, job)
	}
}

// do does one job.
func (c *customers) do(ctx context.Context, number int, job load.Job) {
	if how, key := load.Joins(job); how != "" {
		c.join(ctx, number, job, how, key)
		return
	}
	s := load.ScriptOf(job)
	job = s.Job
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { c.tell(ctx, number, job) })
	run := c.start(ctx, number, job, s)
	if run == "" {
		return
	}
	wg.Go(func() { c.send(ctx, number, job, run) })
	if job.Kind == "poison" { // it takes many minutes until such a run is quarantined
		for !c.shut.Load() && sleep(ctx, 200*time.Millisecond) {
		}
		c.change(ctx, number, job, run, "terminate")
	}
	if s.Verb != "" {
		wg.Go(func() {
			if sleep(ctx, s.After) {
				c.change(ctx, number, job, run, s.Verb)
			}
		})
	}
	if s.Waits {
		c.await(ctx, number, run)
	} else {
		c.ended(ctx, run)
	}
}

// start starts the job's run, and returns its ID, empty if there is none or it is unknown.
func (c *customers) start(ctx context.Context, number int, job load.Job, s load.Script) kagzi.RunID {
	call := evidence.Call{
		Client: number, Verb: "start", Program: job.N, ExternalID: s.ID,
		RolledBack: s.Tx == "roll back",
	}
	begin := func(ctx context.Context) error {
		if s.Tx != "" {
			return c.startInTx(ctx, job, s, &call)
		}
		run, err := kagzi.Start(ctx, c.client(), load.Run, job, s.Options...)
		if err == nil {
			call.Run = string(run.ID())
		}
		return err
	}
	for c.call(ctx, &call, begin) == evidence.Unknown && s.ID != "" && sleep(ctx, 50*time.Millisecond) {
		call.Run, call.Error = "", ""
	}
	if call.Outcome != evidence.OK || call.RolledBack {
		return ""
	}
	return kagzi.RunID(call.Run)
}

// join makes a start that may share its run with others. If its answer is lost, its effect is unknown,
// so it is not repeated.
func (c *customers) join(ctx context.Context, number int, job load.Job, how, key string) {
	call := evidence.Call{Client: number, Verb: how, Program: job.N, Name: key}
	c.call(ctx, &call, func(ctx context.Context) error {
		var run *kagzi.Run[string]
		var err error
		if how == "batch" {
			run, err = kagzi.StartItem(ctx, c.client(), load.Collected, load.Item(job),
				kagzi.Batch{Key: key, Most: 5, Within: 300 * time.Millisecond})
		} else {
			run, err = kagzi.Start(ctx, c.client(), load.Settled, load.Item(job),
				kagzi.Debounce{Key: key, Delay: 200 * time.Millisecond, Max: time.Second})
		}
		if err == nil {
			call.Run = string(run.ID())
		}
		return err
	})
	if call.Outcome == evidence.OK {
		c.ended(ctx, kagzi.RunID(call.Run))
	}
}

var errRolledBack = errors.New("rolled back as planned")

func (c *customers) startInTx(ctx context.Context, job load.Job, s load.Script, call *evidence.Call) error {
	at := c.routes.Of(c.namespace)
	err := pgx.BeginFunc(ctx, c.pools[at], func(tx pgx.Tx) error {
		run, err := kagzi.Start(ctx, c.clients[at], load.Run, job, append(s.Options[:len(s.Options):len(s.Options)],
			kagzi.InTx(tx))...)
		if err != nil {
			return err
		}
		call.Run = string(run.ID())
		if s.Tx == "roll back" {
			return errRolledBack
		}
		return nil
	})
	if errors.Is(err, errRolledBack) {
		return nil
	}
	return err
}

// send sends the messages and the requests that the job's program reads, one after the other, and waits for the
// answers.
func (c *customers) send(ctx context.Context, number int, job load.Job, run kagzi.RunID) {
	messages, requests := load.Messages(job)
	sends := func(id, name string, send func(context.Context) error) bool {
		call := evidence.Call{Client: number, Verb: "signal", Run: string(run), Name: name, Message: id}
		return c.insist(ctx, call, send).Outcome == evidence.OK // else the run is over
	}
	for i, payload := range messages {
		id := fmt.Sprint("m", i)
		m := load.Mail.With(payload).WithID(kagzi.ID(id))
		if !sends(id, load.Mail.Name(), func(ctx context.Context) error { return c.client().Signal(ctx, run, m) }) {
			return
		}
	}
	for i, payload := range requests {
		id := fmt.Sprint("r", i)
		q := load.Asked.With(payload).WithID(kagzi.ID(id))
		asks := func(ctx context.Context) error { return request.Send(ctx, c.client(), run, q) }
		if !sends(id, load.Asked.Name(), asks) {
			return
		}
	}
	for i, payload := range requests {
		c.ask(ctx, number, run, fmt.Sprint("r", i), payload)
	}
}

// ask waits for the answer to a request that is sent.
func (c *customers) ask(ctx context.Context, number int, run kagzi.RunID, id, payload string) {
	call := evidence.Call{Client: number, Verb: "ask", Run: string(run), Name: payload, Message: id}
	for {
		call.Error, call.Output = "", ""
		outcome := c.call(ctx, &call, func(ctx context.Context) (err error) {
			call.Output, err = request.Ask(ctx, c.client(), run, load.Asked.With(payload).WithID(kagzi.ID(id)))
			return err
		})
		if outcome != evidence.Unknown || !sleep(ctx, 50*time.Millisecond) {
			return
		}
	}
}

// await waits for the run's result.
func (c *customers) await(ctx context.Context, number int, id kagzi.RunID) {
	call := evidence.Call{Client: number, Verb: "result", Run: string(id), Began: evidence.Now()}
	for ctx.Err() == nil {
		run, err := kagzi.Find(ctx, c.client(), load.Run, id)
		if err == nil {
			call.Output, err = run.Result(ctx)
		}
		re, failed := errors.AsType[*kagzi.RunError](err)
		switch {
		case err == nil:
			call.Outcome = evidence.OK
		case failed:
			call.Outcome, call.Error, call.Name = evidence.Failed, err.Error(), string(re.Status)
		case errors.Is(err, kagzi.ErrNotFound): // another client has deleted it
			return
		default:
			sleep(ctx, 50*time.Millisecond)
			continue
		}
		call.Ended = evidence.Now()
		c.mu.Lock()
		c.calls = append(c.calls, call)
		c.mu.Unlock()
		return
	}
}

// ended waits until the run is over, and reports whether it is.
func (c *customers) ended(ctx context.Context, run kagzi.RunID) bool {
	for sleep(ctx, 200*time.Millisecond) {
		look, cancel := context.WithTimeout(ctx, callTimeout)
		info, err := c.client().Get(look, run)
		cancel()
		if err == nil && info.Status.Ended() || errors.Is(err, kagzi.ErrNotFound) {
			return err == nil
		}
	}
	return false
}

// change applies a verb to a run.
func (c *customers) change(ctx context.Context, number int, job load.Job, run kagzi.RunID, verb string) {
	call := evidence.Call{Client: number, Verb: verb, Run: string(run)}
	by := kagzi.Actor(fmt.Sprint("customer ", number))
	follow := func() {
		if call.New != "" {
			c.send(ctx, number, job, kagzi.RunID(call.New))
			c.ended(ctx, kagzi.RunID(call.New))
		}
	}
	switch verb {
	case "cancel":
		c.insist(ctx, call, func(ctx context.Context) error { return c.client().Cancel(ctx, run, by) })
	case "terminate":
		c.insist(ctx, call, func(ctx context.Context) error {
			return admin.New(c.client()).Runs.Terminate(ctx, run, by)
		})
	case "pause":
		c.insist(ctx, call, func(ctx context.Context) error { return admin.New(c.client()).Runs.Pause(ctx, run, by) })
		sleep(ctx, 300*time.Millisecond)
		call.Verb = "unpause"
		c.insist(context.WithoutCancel(ctx), call, func(ctx context.Context) error {
			return admin.New(c.client()).Runs.Unpause(ctx, run, by)
		})
	case "update":
		call.Priority = 2
		c.insist(ctx, call, func(ctx context.Context) error {
			return admin.New(c.client()).Runs.Update(ctx, run, kagzi.Priority(call.Priority), by)
		})
	case "resume":
		if c.ended(ctx, run) {
			c.insist(ctx, call, func(ctx context.Context) error {
				return admin.New(c.client()).Runs.Resume(ctx, run, by)
			})
		}
	case "restart":
		if c.ended(ctx, run) {
			c.call(ctx, &call, func(ctx context.Context) error {
				id, err := admin.New(c.client()).Runs.Restart(ctx, run, by)
				call.New = string(id)
				return err
			})
			follow()
		}
	case "fork":
		if c.ended(ctx, run) {
			c.call(ctx, &call, func(ctx context.Context) error {
				steps, err := c.client().Steps(ctx, run)
				if err != nil || len(steps) == 0 {
					return errors.Join(err, kagzi.ErrNotFound)
				}
				call.Name = steps[len(steps)/2].Step
				id, err := admin.New(c.client()).Runs.Fork(ctx, run, call.Name, by)
				call.New = string(id)
				return err
			})
			follow()
		}
	case "delete":
		if c.ended(ctx, run) {
			c.insist(ctx, call, func(ctx context.Context) error {
				return admin.New(c.client()).Runs.Delete(ctx, run, by)
			})
		}
	case "cancel all", "resume all":
		c.changeAll(ctx, number, verb)
	}
}

// changeAll applies a verb to some runs of one queue at once, and returns how many it has changed for sure.
func (c *customers) changeAll(ctx context.Context, number int, verb string) int {
	f := kagzi.RunFilter{Workflow: load.Run.Name(), Queue: "narrow", Limit: 3}
	by := kagzi.Actor(fmt.Sprint("customer ", number))
	call := evidence.Call{Client: number, Verb: verb}
	var done admin.BulkResult
	c.call(ctx, &call, func(ctx context.Context) (err error) {
		switch verb {
		case "cancel all":
			f.Status = []kagzi.Status{kagzi.StatusPending}
			done, err = admin.New(c.client()).Runs.CancelAll(ctx, f, by)
		case "resume all":
			f.Status = []kagzi.Status{kagzi.StatusFailed}
			done, err = admin.New(c.client()).Runs.ResumeAll(ctx, f, by)
		case "update all":
			m := kagzi.Metadata{"by": fmt.Sprint(evidence.Now())}
			done, err = admin.New(c.client()).Runs.UpdateAll(ctx, f, m, by)
		case "delete all":
			f.Status = []kagzi.Status{kagzi.StatusCompleted, kagzi.StatusFailed}
			done, err = admin.New(c.client()).Runs.DeleteAll(ctx, f, by)
		}
		return err
	})
	if one := strings.TrimSuffix(verb, " all"); one != "update" {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, run := range done.Changed {
			c.calls = append(c.calls, evidence.Call{
				Client: number, Verb: one, Run: string(run), Began: call.Began,
				Ended: call.Ended, Outcome: evidence.OK,
			})
		}
	}
	return len(done.Changed)
}

package ports_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/request"
	"github.com/kagzi/kagzi/value"
)

// A cluster has the job of each of its nodes: none is "", and a bad node has "bad".
type cluster struct {
	Jobs      []string
	Started   bool
	NextCheck time.Time
}

type assignment struct {
	Job   string
	Nodes int
}

var (
	manage   = kagzi.Define[cluster, int]("manage")
	open     = kagzi.DefineSignal[struct{}]("open")
	shutdown = kagzi.DefineSignal[struct{}]("shutdown")
	assign   = request.Define[assignment, []int]("assign")
	release  = request.Define[string, struct{}]("release")
)

// manageCluster returns how many nodes are bad in the end. It deals with one message after the other, so it needs no
// lock. A real cluster would continue after some hundred messages.
func manageCluster(ctx kagzi.Context, c cluster) (int, error) {
	if !c.Started {
		if _, err := kagzi.WaitSignal(ctx, open); err != nil {
			return 0, err
		}
		c.Started, c.NextCheck = true, ctx.Now().Add(10*time.Minute)
	}
	for range 5 {
		done, err := c.next(ctx)
		if done || err != nil {
			return len(c.nodesOf("bad")), err
		}
	}
	return 0, kagzi.Continue(ctx, c)
}

// next does what comes first.
func (c *cluster) next(ctx kagzi.Context) (done bool, err error) {
	_, act, err := kagzi.Race(ctx, "next", map[string]func(kagzi.Context) (func() error, error){
		"assign": func(b kagzi.Context) (func() error, error) {
			r, err := request.Wait(b, assign)
			return func() error { return c.assign(ctx, r) }, err
		},
		"release": func(b kagzi.Context) (func() error, error) {
			r, err := request.Wait(b, release)
			return func() error { return c.release(ctx, r) }, err
		},
		"check": func(b kagzi.Context) (func() error, error) {
			return func() error { return c.check(ctx) }, kagzi.Sleep(b, "interval", c.NextCheck.Sub(b.Now()))
		},
		"shutdown": func(b kagzi.Context) (func() error, error) {
			_, err := kagzi.WaitSignal(b, shutdown)
			return func() error { done = true; return nil }, err
		},
	})
	if err == nil {
		err = act()
	}
	return done, err
}

func (c *cluster) assign(ctx kagzi.Context, r *request.Received[assignment, []int]) error {
	if nodes := c.nodesOf(r.In.Job); len(nodes) > 0 {
		return r.Reply(ctx, nodes)
	}
	nodes := c.nodesOf("")
	if len(nodes) < r.In.Nodes {
		return r.Refuse(ctx, kind.RateLimited)
	}
	nodes = nodes[:r.In.Nodes]
	if err := kagzi.Do(ctx, "assign-"+r.In.Job, nodesDo); err != nil {
		return err
	}
	for _, n := range nodes {
		c.Jobs[n] = r.In.Job
	}
	return r.Reply(ctx, nodes)
}

func (c *cluster) release(ctx kagzi.Context, r *request.Received[string, struct{}]) error {
	if err := kagzi.Do(ctx, "release-"+r.In, nodesDo); err != nil {
		return err
	}
	for _, n := range c.nodesOf(r.In) {
		c.Jobs[n] = ""
	}
	return r.Reply(ctx, struct{}{})
}

func (c *cluster) check(ctx kagzi.Context) error {
	bad, err := kagzi.Step(ctx, "check", func(context.Context) ([]int, error) { return []int{0, 5, 10, 15, 20}, nil })
	for _, n := range bad {
		c.Jobs[n] = "bad"
	}
	c.NextCheck = ctx.Now().Add(10 * time.Minute)
	return err
}

func (c *cluster) nodesOf(job string) (nodes []int) {
	for n, j := range c.Jobs {
		if j == job {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// nodesDo is the call of the cluster.
func nodesDo(context.Context) error { return nil }

// TestClusterManager has a run that gives nodes to jobs and takes them back, one request after the other, checks the
// nodes every ten minutes, and continues. Concurrent askers get different nodes.
//
// Original: temporal samples-go/safe_message_handler, 412 lines; here 125.
func TestClusterManager(t *testing.T) {
	k := kit.New(t)
	kit.Serve(k, manage, manageCluster)
	run := kit.Begin(k, manage, cluster{Jobs: make([]string, 25)}, kagzi.ID("cluster"), open.With(struct{}{}))
	var taken [25]atomic.Int64
	atOnce(6, func(i int) {
		for _, n := range ask(k, run, assign.With(assignment{fmt.Sprint("job-", i), 2})) {
			taken[n].Add(1)
		}
	})
	for n := range taken {
		if got := taken[n].Load(); got > 1 || got == 0 && n < 12 {
			t.Errorf("node %d has %d jobs", n, got)
		}
	}
	_, err := request.Ask(k.Ctx, k.Client, run, assign.With(assignment{"huge", 20}))
	if !errors.Is(err, kind.RateLimited) {
		t.Errorf("more nodes than there are: %v", err)
	}
	k.WaitStatus(run, kagzi.StatusSleeping)
	k.Forward(run.ID())
	await.True(t, "the nodes are checked", func() bool { return len(k.Steps(run)["check"]) > 0 })
	atOnce(6, func(i int) { ask(k, run, release.With(fmt.Sprint("job-", i))) })
	k.Signal(run, shutdown.With(struct{}{}))
	if bad := kit.ResultOf(k, run); bad != 5 || k.InfoOf(run).Epoch < 2 {
		t.Errorf("%d bad nodes in epoch %d", bad, k.InfoOf(run).Epoch)
	}
}

type transaction struct {
	ID     string
	Amount int
}

var (
	transfer = kagzi.Define[int, transaction]("transfer")
	accepted = request.Define[struct{}, transaction]("accepted")
)

// transferring answers once the transaction is valid, and then completes it.
func transferring(complete, cancel func(context.Context) error) func(kagzi.Context, int) (transaction, error) {
	return func(ctx kagzi.Context, amount int) (transaction, error) {
		r, err := request.Wait(ctx, accepted)
		if err != nil {
			return transaction{}, err
		}
		tx, err := kagzi.Step(ctx, "init", func(ctx context.Context) (transaction, error) {
			if amount <= 0 {
				return transaction{}, kagzi.Permanent(errors.New("the amount is not positive"))
			}
			return transaction{kagzi.CurrentStep(ctx).Key, amount}, nil
		})
		if err != nil {
			return tx, errors.Join(err, r.Refuse(ctx, err), kagzi.Do(ctx, "cancel", cancel))
		}
		if err := r.Reply(ctx, tx); err != nil {
			return tx, err
		}
		return tx, kagzi.Do(ctx, "complete", complete)
	}
}

// TestEarlyReturn starts a transfer and asks it in one call. The caller has the validated transaction while the run
// completes it.
//
// Original: temporal samples-go/early-return, 118 lines; here 50.
func TestEarlyReturn(t *testing.T) {
	k := kit.New(t)
	told, cancelled := make(chan struct{}), make(chan struct{}, 1)
	kit.Serve(k, transfer, transferring(func(context.Context) error {
		await.Opened(t, told)
		return nil
	}, func(context.Context) error {
		cancelled <- struct{}{}
		return nil
	}))
	early := ask(k, transfer.With(100, kagzi.ID("transfer-7")), accepted.With(struct{}{}))
	close(told)
	if tx := kit.ResultOf(k, kit.Find(t, k.Client, transfer, kagzi.ID("transfer-7"))); tx != early || tx.Amount != 100 {
		t.Errorf("got %+v and then %+v", early, tx)
	}
	_, err := request.Ask(k.Ctx, k.Client, transfer.With(0, kagzi.ID("transfer-8")), accepted.With(struct{}{}))
	if _, refused := errors.AsType[*request.Refusal](err); !refused {
		t.Errorf("a transfer of nothing: %v", err)
	}
	await.Receive(t, cancelled)
}

var (
	counter     = kagzi.Define[struct{}, int]("counter")
	fetchAndAdd = request.Define[int, int]("fetch-and-add", func(n int) error {
		if n < 0 {
			return errors.New("it is negative")
		}
		return nil
	})
	done = kagzi.DefineSignal[struct{}]("done")
)

// TestCounter has a run that counts, answers with the number before, and refuses negative ones, until it is done.
//
// Original: temporal samples-go/update, 78 lines; here 45.
func TestCounter(t *testing.T) {
	k := kit.New(t)
	type asked = *request.Received[int, int]
	kit.Serve(k, counter, func(ctx kagzi.Context, _ struct{}) (n int, err error) {
		for {
			_, r, err := kagzi.Race(ctx, "next", map[string]func(kagzi.Context) (asked, error){
				"add": func(ctx kagzi.Context) (asked, error) { return request.Wait(ctx, fetchAndAdd) },
				"done": func(ctx kagzi.Context) (asked, error) {
					_, err := kagzi.WaitSignal(ctx, done)
					return nil, err
				},
			})
			if err != nil || r == nil {
				return n, err
			}
			if err := r.Reply(ctx, n); err != nil {
				return n, err
			}
			n += r.In
		}
	})
	run := kit.Begin(k, counter, struct{}{})
	for i, before := range []int{0, 0, 1, 3, 6} {
		if got := ask(k, run, fetchAndAdd.With(i)); got != before {
			t.Errorf("got %d, want %d", got, before)
		}
	}
	if _, err := request.Ask(k.Ctx, k.Client, run, fetchAndAdd.With(-1)); !errors.Is(err, kind.Validation) {
		t.Errorf("a negative number: %v", err)
	}
	k.Signal(run, done.With(struct{}{}))
	if got := kit.ResultOf(k, run); got != 10 {
		t.Errorf("counted to %d", got)
	}
}

var (
	uppercaser = kagzi.Define[struct{}, struct{}]("uppercaser")
	uppercase  = request.Define[string, string]("uppercase")
)

// TestUppercaser has a run that serves requests without end, and continues after ten. Requests that come meanwhile need
// no refusal and no second try.
//
// Original: temporal samples-go/reqrespupdate, 165 lines; here 37. With signals and activities: temporal
// samples-go/reqrespactivity, 219 lines; here 37. With signals and a query: temporal samples-go/reqrespquery, 188
// lines; here 37.
func TestUppercaser(t *testing.T) {
	k := kit.New(t)
	kit.Serve(k, uppercaser, func(ctx kagzi.Context, _ struct{}) (struct{}, error) {
		for range 10 {
			r, err := request.Wait(ctx, uppercase)
			if err != nil {
				return struct{}{}, err
			}
			upper, err := kagzi.Step(ctx, "upper", func(context.Context) (string, error) {
				return strings.ToUpper(r.In), nil
			})
			if err != nil {
				err = r.Refuse(ctx, err)
			} else {
				err = r.Reply(ctx, upper)
			}
			if err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, kagzi.Continue(ctx, struct{}{})
	})
	run := kit.Begin(k, uppercaser, struct{}{}, kagzi.ID("uppercaser"))
	atOnce(35, func(i int) {
		if got := ask(k, kagzi.ID("uppercaser"), uppercase.With(fmt.Sprint("a", i))); got != fmt.Sprint("A", i) {
			t.Errorf("got %q", got)
		}
	})
	if epoch := k.InfoOf(run).Epoch; epoch != 3 {
		t.Errorf("epoch %d", epoch)
	}
	k.Cancel(run)
}

type change struct {
	Item string
	By   int
}

var (
	shop   = kagzi.Define[map[string]int, map[string]int]("shop")
	inCart = value.Define[map[string]int]("in-cart")
	alter  = request.Define[change, map[string]int]("alter", func(c change) error {
		if c.Item == "" {
			return errors.New("it names no item")
		}
		return nil
	})
	checkout = request.Define[struct{}, map[string]int]("checkout")
)

// shopping has a cart, and returns what was bought.
func shopping(ctx kagzi.Context, items map[string]int) (map[string]int, error) {
	for range 3 {
		_, act, err := kagzi.Race(ctx, "next", map[string]func(kagzi.Context) (func() (bool, error), error){
			"alter": func(b kagzi.Context) (func() (bool, error), error) {
				r, err := request.Wait(b, alter)
				return func() (bool, error) {
					if items[r.In.Item] += r.In.By; items[r.In.Item] <= 0 {
						delete(items, r.In.Item)
					}
					return false, errors.Join(value.Set(ctx, inCart, items), r.Reply(ctx, items))
				}, err
			},
			"checkout": func(b kagzi.Context) (func() (bool, error), error) {
				r, err := request.Wait(b, checkout)
				return func() (bool, error) { return true, r.Reply(ctx, items) }, err
			},
		})
		if err != nil {
			return nil, err
		}
		if over, err := act(); over || err != nil {
			return items, err
		}
	}
	return nil, kagzi.Continue(ctx, items)
}

// TestShoppingCart fills a cart that the first item starts, takes things out of it, and checks out. The cart continues,
// and its items can be read at any time.
//
// Original: temporal samples-go/shoppingcart, 70 lines; here 64. Only its workflow is counted.
func TestShoppingCart(t *testing.T) {
	k := kit.New(t)
	kit.Serve(k, shop, shopping)
	cart := shop.With(map[string]int{}, kagzi.ID("cart-7"))
	for range 2 { // a double click
		ask(k, cart, alter.With(change{"pear", 1}).WithID("click-1"))
	}
	ask(k, cart, alter.With(change{"apple", 2}))
	ask(k, cart, alter.With(change{"plum", 3}))
	ask(k, cart, alter.With(change{"plum", -3}))
	if now, err := value.Get(k.Ctx, k.Client, kagzi.ID("cart-7"), inCart); err != nil || len(now.Value) != 2 {
		t.Errorf("the cart has %v, %v", now.Value, err)
	}
	if _, err := request.Ask(k.Ctx, k.Client, cart, alter.With(change{"", 1})); !errors.Is(err, kind.Validation) {
		t.Errorf("an item without a name: %v", err)
	}
	run := kit.Find(t, k.Client, shop, kagzi.ID("cart-7"))
	bought := ask(k, run, checkout.With(struct{}{}))
	if bought["pear"] != 1 || bought["apple"] != 2 || len(bought) != 2 || k.InfoOf(run).Epoch != 1 {
		t.Errorf("bought %v in epoch %d", bought, k.InfoOf(run).Epoch)
	}
	kit.ResultOf(k, run)
}

type order struct{ Email, Size, Color string }

var (
	ordering = kagzi.Define[struct{}, order]("ordering")
	email    = request.Define[string, string]("email")
	size     = request.Define[string, string]("size")
	color    = request.Define[string, string]("color")
)

// choice waits for a request until its answer is one of the choices, and says what comes next.
func choice(ctx kagzi.Context, q request.Request[string, string], next string, choices ...string) (string, error) {
	for {
		r, err := request.Wait(ctx, q)
		if err != nil {
			return "", err
		}
		if len(choices) == 0 || slices.Contains(choices, r.In) {
			return r.In, r.Reply(ctx, next)
		}
		if err := r.Refuse(ctx, kind.Validation); err != nil {
			return "", err
		}
	}
}

// TestDialogue leads a caller through the pages of an order. Each page sends what was entered and gets the next page,
// or an error.
//
// Original: temporal samples-go/synchronous-proxy, 191 lines; here 53. Its activities and pages are not counted.
func TestDialogue(t *testing.T) {
	k := kit.New(t)
	kit.Serve(k, ordering, func(ctx kagzi.Context, _ struct{}) (o order, err error) {
		if o.Email, err = choice(ctx, email, "size"); err != nil {
			return o, err
		}
		if o.Size, err = choice(ctx, size, "color", "small", "large"); err != nil {
			return o, err
		}
		if o.Color, err = choice(ctx, color, "thanks", "red", "blue"); err != nil {
			return o, err
		}
		return o, kagzi.Do(ctx, "ship", func(context.Context) error { return nil })
	})
	id := kagzi.ID("order-7")
	if page := ask(k, ordering.With(struct{}{}, id), email.With("ada@example.com")); page != "size" {
		t.Errorf("page %q", page)
	}
	if _, err := request.Ask(k.Ctx, k.Client, id, size.With("huge")); !errors.Is(err, kind.Validation) {
		t.Errorf("no such size: %v", err)
	}
	if page := ask(k, id, size.With("large")); page != "color" {
		t.Errorf("page %q", page)
	}
	run := kit.Find(t, k.Client, ordering, id)
	if page := ask(k, run, color.With("red")); page != "thanks" {
		t.Errorf("page %q", page)
	}
	if got := kit.ResultOf(k, run); got != (order{"ada@example.com", "large", "red"}) {
		t.Errorf("ordered %+v", got)
	}
}

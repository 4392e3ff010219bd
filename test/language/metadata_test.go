package language_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

func shownMetadata(m kagzi.Metadata) string { return shownHeaders(kagzi.Headers(m)) }

func TestSetMetadata(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[struct{}, string]("wf")
	seen := make(chan string, 10)
	kit.ServeWith(k, kit.NotifiedOnly, wf, func(ctx kagzi.Context, _ struct{}) (string, error) {
		at := "start: " + shownMetadata(ctx.Metadata())
		if err := kagzi.SetMetadata(ctx, "first", kagzi.Metadata{"state": "paid", "new": "1"}); err != nil {
			return "", err
		}
		ctx.Metadata()["state"] = "a copy"
		at += " | first: " + shownMetadata(ctx.Metadata())
		if err := kagzi.Sleep(ctx, "nap", time.Hour); err != nil {
			return "", err
		}
		if err := kagzi.SetMetadata(ctx, "second", kagzi.Metadata{"state": "", "page": "7"}); err != nil {
			return "", err
		}
		at += " | second: " + shownMetadata(ctx.Metadata())
		seen <- at
		return at, kagzi.Sleep(ctx, "nap again", time.Hour)
	})
	run := kit.Begin(k, wf, struct{}{}, kagzi.Metadata{"customer": "ada", "state": "open"})
	info := k.WaitStatus(run.ID(), kagzi.StatusSleeping, "timer nap")
	if got := shownMetadata(info.Metadata); got != "customer=ada new=1 state=paid" {
		t.Errorf("after the first change: %s", got)
	}
	found, err := k.Client.List(k.Ctx, kagzi.RunFilter{Metadata: kagzi.Metadata{"state": "paid"}})
	if err != nil || len(found) != 1 {
		t.Errorf("found %v, %v", found, err)
	}
	k.Exec(`UPDATE kagzi.workflow_runs SET metadata = metadata || '{"operator": "eve", "customer": "bob"}' `+
		`WHERE run_id = $1`, run.ID())
	k.Forward(run.ID())
	info = k.WaitStatus(run.ID(), kagzi.StatusSleeping, "timer nap again")
	if got := shownMetadata(info.Metadata); got != "customer=bob new=1 operator=eve page=7" {
		t.Errorf("after the second change: %s", got)
	}
	k.Forward(run.ID())
	want := "start: customer=ada state=open | first: customer=ada new=1 state=paid | second: customer=ada new=1 page=7"
	if got := kit.ResultOf(k, run); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if first, again := <-seen, <-seen; first != again {
		t.Errorf("the replay saw %s, and before that %s", again, first)
	}

	again, err := admin.New(k.Client).Runs.Restart(k.Ctx, run.ID())
	if err != nil {
		t.Fatal(err)
	}
	if got := shownMetadata(k.WaitStatus(again, kagzi.StatusSleeping, "timer nap").Metadata); got !=
		"customer=ada new=1 state=paid" {
		t.Errorf("the restart has %s", got)
	}
	fork, err := admin.New(k.Client).Runs.Fork(k.Ctx, run.ID(), "nap again")
	if err != nil {
		t.Fatal(err)
	}
	if got := shownMetadata(k.InfoOf(fork).Metadata); got != "customer=ada new=1 page=7" {
		t.Errorf("the fork begins with %s", got)
	}
	k.WaitStatus(fork, kagzi.StatusSleeping, "timer nap again")
	k.Forward(fork)
	if got := kit.ResultOf(k, kit.Find(t, k.Client, wf, fork)); got != want {
		t.Errorf("the fork returns %s", got)
	}
}

// What a branch sees depends on no other branch that it has not waited for.
func TestMetadataOfBranches(t *testing.T) {
	k := kit.New(t)
	set := func(ctx kagzi.Context, value string) error {
		return kagzi.SetMetadata(ctx, "set", kagzi.Metadata{"by": value, value: "x"})
	}
	var first string
	got := kit.Complete(k, func(ctx kagzi.Context) (string, error) {
		if err := set(ctx, "root"); err != nil {
			return "", err
		}
		a := kagzi.Go(ctx, "a", func(ctx kagzi.Context) (string, error) {
			if err := kagzi.Sleep(ctx, "nap", 10*time.Millisecond); err != nil {
				return "", err
			}
			return shownMetadata(ctx.Metadata()), set(ctx, "a")
		})
		b := kagzi.Go(ctx, "b", func(ctx kagzi.Context) (string, error) {
			return shownMetadata(ctx.Metadata()), set(ctx, "b")
		})
		inB, err := b.Result(ctx)
		if err != nil {
			return "", err
		}
		afterB := shownMetadata(ctx.Metadata())
		inA, err := a.Result(ctx)
		if err != nil {
			return "", err
		}
		_, _ = b.Result(ctx)
		all := fmt.Sprintf("%s | %s | %s | %s", inB, inA, afterB, shownMetadata(ctx.Metadata()))
		if first == "" {
			first = all
			_ = kagzi.Sleep(ctx, "long", time.Second)
		}
		return first + " / " + all, nil
	})
	want := "by=root root=x | by=root root=x | b=x by=b root=x | a=x b=x by=a root=x"
	if got != want+" / "+want {
		t.Errorf("got %s\nwant %s twice", got, want)
	}
}

func TestInheritedMetadata(t *testing.T) {
	k := kit.New(t)
	child := kagzi.Define[string, string]("child", kagzi.Metadata{"kind": "child"})
	kit.Serve(k, child, func(ctx kagzi.Context, _ string) (string, error) { return shownMetadata(ctx.Metadata()), nil })
	got := kit.Complete(k, func(ctx kagzi.Context) (string, error) {
		if err := kagzi.SetMetadata(ctx, "set", kagzi.Metadata{"customer": "ada", "kind": "parent"}); err != nil {
			return "", err
		}
		with, err := kagzi.RunChild(ctx, "with", child, "", kagzi.InheritMetadata())
		if err != nil {
			return "", err
		}
		without, err := kagzi.RunChild(ctx, "without", child, "")
		return with + " | " + without, err
	})
	if got != "customer=ada kind=child | kind=child" {
		t.Errorf("got %s", got)
	}
	_, err := kagzi.Start(k.Ctx, k.Client, child, "", kagzi.InheritMetadata())
	kit.MustContain(t, err, "takes no InheritMetadata", "only a child")
}

func TestWrongMetadata(t *testing.T) {
	for _, tt := range []struct {
		m    kagzi.Metadata
		says string
	}{
		{nil, "the Metadata are empty"},
		{kagzi.Metadata{"\n": "x"}, "Metadata key"},
		{kagzi.Metadata{"big": string(make([]byte, 17<<10))}, "NUL"},
	} {
		t.Run(tt.says, func(t *testing.T) {
			k := kit.New(t)
			err := kit.Refused(k, func(ctx kagzi.Context) (int, error) {
				return 0, kagzi.SetMetadata(ctx, "set", tt.m)
			})
			kit.MustContain(t, err, tt.says)
		})
	}
	err := kit.Refused(kit.New(t), func(ctx kagzi.Context) (int, error) {
		for i := range 66 {
			if err := kagzi.SetMetadata(ctx, "set", kagzi.Metadata{fmt.Sprint(i): "x"}); err != nil {
				return i, err
			}
		}
		return 0, nil
	})
	kit.MustContain(t, err, "Metadata has 65 entries")
	if err.Kind != kind.BadRequest {
		t.Errorf("kind %s", err.Kind)
	}
}

// SetMetadata changes the run's row. So a stricter transaction of another branch fails, and is tried again.
func TestMetadataBesideAStrictTransaction(t *testing.T) {
	k := kit.New(t)
	calls, open := 0, make(chan struct{})
	kit.Complete(k, func(ctx kagzi.Context) (int, error) {
		return 0, kagzi.Parallel(ctx, "both", map[string]func(kagzi.Context) error{
			"tx": func(ctx kagzi.Context) error {
				return kagzi.DoTx(ctx, "strict", func(ctx context.Context, tx pgx.Tx) error {
					calls++
					if _, err := tx.Exec(ctx, `SELECT count(*) FROM kagzi.workflow_runs`); err != nil || calls > 1 {
						return err
					}
					close(open)
					await.True(t, "the other branch has written", func() bool {
						return k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE metadata IS NOT NULL`) == 1
					})
					return nil
				}, kagzi.Isolation(pgx.RepeatableRead), kit.Soon)
			},
			"other": func(ctx kagzi.Context) error {
				if err := kagzi.Do(ctx, "step", func(context.Context) error { <-open; return nil }); err != nil {
					return err
				}
				return kagzi.SetMetadata(ctx, "tags", kagzi.Metadata{"state": "paid"})
			},
		})
	})
	if calls != 2 {
		t.Errorf("the transaction was tried %d times", calls)
	}
}

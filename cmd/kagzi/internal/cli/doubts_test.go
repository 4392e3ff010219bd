package cli_test

import (
	"context"
	"errors"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
)

// A step in doubt is listed and explained, and resolved once; the audit log says by whom.
func TestDoubts(t *testing.T) {
	k, s := newShell(t)
	refund := kagzi.Define[string, string]("refund")
	kit.Serve(k, refund, func(ctx kagzi.Context, _ string) (string, error) {
		return kagzi.Step(ctx, "pay", func(context.Context) (string, error) {
			return "", errors.New("connection reset")
		}, kagzi.AtMostOnce())
	})
	run := kit.Begin(k, refund, "", kagzi.ID("order-42"))
	k.WaitStatus(run, kagzi.StatusSleeping, "doubt pay")
	s.run("runs doubts").ok().prints("order-42", "pay", "connection reset")
	s.run("runs get order-42").ok().prints("what the call has done is not known: connection reset",
		"kagzi runs resolve order-42 pay")
	s.run("runs steps order-42").ok().prints("IN_DOUBT")
	s.run("health").exits(4).prints("doubts", "kagzi runs doubts")
	s.run("runs resolve order-42 pay").exits(2).says("say what the call has done")
	s.run("runs resolve order-42 pay --outcome did-not-happen --result 7").exits(2).says("leave it out")
	s.run("runs resolve order-42 pay --outcome yes").exits(2).says("--outcome is \"yes\": it is happened")
	s.run("runs resolve order-42 pay --outcome happened").exits(2).says("--result is missing")
	s.run("runs resolve order-42 other --outcome did-not-happen").exits(1).says("has another name")
	s.run("runs resolve order-42 pay --outcome happened --actor ada --result", `"re_77"`).ok().
		prints("resolved pay of order-42: happened")
	s.run("runs wait order-42").ok().prints(`"re_77"`)
	s.run("audit").ok().prints("RESOLVED", "ada")
	s.run("runs doubts").ok().says("No step is in doubt.")
}

package ui

import (
	"context"
	"log/slog"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
)

// A brokenHandler panics at each line.
type brokenHandler struct{ slog.Handler }

func (brokenHandler) Enabled(context.Context, slog.Level) bool { return true }

func (brokenHandler) Handle(context.Context, slog.Record) error { panic("the log is broken") }

// A change is answered although the handler of Config.Logger panics when the dashboard logs it.
func TestHandlerThatPanics(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{Authorize: everybody, Logger: slog.New(brokenHandler{slog.DiscardHandler})})
	run := kit.Begin(k, echo, "x", kagzi.ID("one"))
	s.mustPost("/runs/"+string(run.ID())+"/cancel", "reason", "the customer called")
	if status := k.InfoOf(run).Status; status != kagzi.StatusCancelled {
		t.Errorf("the run is %s", status)
	}
}

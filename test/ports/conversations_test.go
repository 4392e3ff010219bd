package ports_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/request"
	"github.com/kagzi/kagzi/value"
)

var (
	greeter     = kagzi.Define[struct{}, string]("greeter")
	language    = value.Define[string]("language")
	setLanguage = request.Define[string, string]("set-language", func(to string) error {
		if !slices.Contains([]string{"English", "French", "Hindi"}, to) {
			return errors.New("no such language")
		}
		return nil
	})
	approve = request.Define[string, string]("approve")
	visitor = kagzi.Define[kagzi.ID, string]("visitor")
)

// greeting serves requests for a language until one approves the greeting in it, and is answered with that.
func greeting(ctx kagzi.Context, _ struct{}) (string, error) {
	type asked = *request.Received[string, string]
	texts, now := map[string]string{"English": "Hello"}, "English"
	for {
		winner, r, err := kagzi.Race(ctx, "next", map[string]func(kagzi.Context) (asked, error){
			"approve":  func(b kagzi.Context) (asked, error) { return request.Wait(b, approve) },
			"language": func(b kagzi.Context) (asked, error) { return request.Wait(b, setLanguage) },
		})
		if err != nil {
			return "", err
		}
		if winner == "approve" {
			text := fmt.Sprintf("%s (approved by %s)", texts[now], r.In)
			return text, r.Reply(ctx, text)
		}
		if texts[r.In] == "" {
			if texts, err = kagzi.Step(ctx, "translate", translate); err != nil {
				return "", err
			}
		}
		before := now
		now = r.In
		if err := errors.Join(value.Set(ctx, language, now), r.Reply(ctx, before)); err != nil {
			return "", err
		}
	}
}

func translate(context.Context) (map[string]string, error) {
	return map[string]string{"English": "Hello", "French": "Bonjour", "Hindi": "Namaste"}, nil
}

// TestRunAsksRun has a run that starts another one by asking it, reads its value, and gets its greeting. While it waits
// for the answers, it holds nothing.
//
// Original: temporal samples-go/nexus-messaging/ondemandpattern, 365 lines; here 66. Of a run that is there: temporal
// samples-go/nexus-messaging/callerpattern, 291 lines; here 66.
func TestRunAsksRun(t *testing.T) {
	k := kit.New(t)
	kit.Serve(k, greeter, greeting)
	kit.Serve(k, visitor, func(ctx kagzi.Context, user kagzi.ID) (string, error) {
		call := greeter.With(struct{}{}, "greeter-"+user)
		before, err := request.AskStep(ctx, "set", call, setLanguage.With("French"))
		if err != nil {
			return before, err
		}
		now, err := kagzi.Step(ctx, "get", func(ctx context.Context) (string, error) {
			now, err := value.Get(ctx, k.Client, "greeter-"+user, language)
			return now.Value, err
		})
		if err != nil {
			return now, err
		}
		text, err := request.AskStep(ctx, "approve", "greeter-"+user, approve.With(string(user)))
		return fmt.Sprintf("%s, then %s: %s", before, now, text), err
	})
	got := kit.ResultOf(k, kit.Begin(k, visitor, "ada"))
	if got != "English, then French: Bonjour (approved by ada)" {
		t.Errorf("got %q", got)
	}
}

type turn struct{ Said, Answer string }

var (
	chat = kagzi.Define[[]turn, struct{}]("chat")
	say  = request.Define[string, string]("say", func(text string) error {
		if text == "" {
			return errors.New("it says nothing")
		}
		return nil
	})
)

// TestChat has a conversation with a model, which gets all turns before with each message. It continues after three
// turns, and takes them along.
//
// Original: temporal samples-go/googleadk/chat, 136 lines; here 43.
func TestChat(t *testing.T) {
	k := kit.New(t)
	model := func(turns []turn, said string) string { return fmt.Sprintf("%d: %s", len(turns)+1, said) }
	kit.Serve(k, chat, func(ctx kagzi.Context, turns []turn) (struct{}, error) {
		for range 3 {
			r, err := request.Wait(ctx, say)
			if err != nil {
				return struct{}{}, err
			}
			answer, err := kagzi.Step(ctx, "model", func(context.Context) (string, error) {
				return model(turns, r.In), nil
			})
			if err != nil {
				return struct{}{}, errors.Join(err, r.Refuse(ctx, err))
			}
			turns = append(turns, turn{r.In, answer})
			if err := r.Reply(ctx, answer); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, kagzi.Continue(ctx, turns)
	})
	call := chat.With(nil, kagzi.ID("chat-7"))
	for n := 1; n <= 4; n++ {
		if got := ask(k, call, say.With("hello")); got != fmt.Sprintf("%d: hello", n) {
			t.Errorf("got %q", got)
		}
	}
	if _, err := request.Ask(k.Ctx, k.Client, call, say.With("")); !errors.Is(err, kind.Validation) {
		t.Errorf("nothing said: %v", err)
	}
	k.Cancel(kagzi.ID("chat-7"))
}

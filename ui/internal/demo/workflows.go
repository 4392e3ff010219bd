package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/topic"
)

// An Order is what a customer buys.
type Order struct {
	ID       string   `json:"id"`
	Customer string   `json:"customer"`
	Euros    int      `json:"euros"`
	Items    []string `json:"items,omitempty"`
	Declined bool     `json:"declined,omitempty"` // the card is
	Away     bool     `json:"away,omitempty"`     // the carrier's service is, for the first attempt
	Quick    bool     `json:"quick,omitempty"`    // without cooling off
}

// A Receipt is the result of a checkout.
type Receipt struct {
	Order   string    `json:"order"`
	Payment string    `json:"payment"`
	Parcel  string    `json:"parcel,omitempty"`
	At      time.Time `json:"at"`
}

// A Trip is booked in parts, which are undone if one cannot be had.
type Trip struct {
	Traveller string `json:"traveller"`
	To        string `json:"to"`
	SoldOut   bool   `json:"sold_out,omitempty"`
}

// Declined is a kind of failure of the application.
const Declined kind.Kind = "card_declined"

// The workflows, signals, topics and consumers of the shop.
var (
	Checkout = kagzi.Define[Order, Receipt]("checkout", kagzi.Queue("shop"))
	Ship     = kagzi.Define[Order, string]("ship", kagzi.Queue("shop"))
	Approval = kagzi.Define[Order, string]("approval", kagzi.Queue("office"))
	Travel   = kagzi.Define[Trip, string]("trip", kagzi.Queue("office"))
	Undo     = kagzi.Define[string, string]("undo-booking", kagzi.Queue("office"))
	Import   = kagzi.Define[int, int]("import", kagzi.Queue("imports"))
	Report   = kagzi.Define[string, int]("report", kagzi.Queue("office"))
	Broken   = kagzi.Define[string, string]("invoice", kagzi.Queue("office"))
	Legacy   = kagzi.Define[string, string]("legacy-sync", kagzi.Queue("legacy"))
	Summary  = kagzi.Define[string, string]("summarize", kagzi.Queue("office"))

	Approved = kagzi.DefineSignal[bool]("approved")
	Mailed   = topic.Define[Mail]("mail.received")
	Sorter   = topic.DefineConsumer("mail-sorter", topic.ConsumerConfig{
		Topics: []topic.AnyTopic{Mailed},
		Queue:  "office",
	})
)

// A Mail is an event.
type Mail struct {
	From    string `json:"from"`
	Subject string `json:"subject"`
}

var customers = []string{"acme", "globex", "initech", "umbrella"}

// handle gives the workers their code.
func handle(shop, office *kagzi.Worker) {
	kagzi.Handle(shop, Checkout, checkout, kagzi.Version(2))
	kagzi.Handle(shop, Ship, ship)
	kagzi.Handle(office, Approval, approval)
	kagzi.Handle(office, Travel, travel)
	kagzi.Handle(office, Undo, func(ctx kagzi.Context, what string) (string, error) {
		return kagzi.Step(ctx, "cancel booking", func(context.Context) (string, error) {
			return "cancelled " + what, nil
		})
	})
	kagzi.Handle(office, Import, imports)
	kagzi.Handle(office, Report, report)
	kagzi.Handle(office, Summary, summary)
	kagzi.Handle(office, Broken, func(ctx kagzi.Context, how string) (string, error) {
		return kagzi.Step(ctx, "render", func(context.Context) (string, error) {
			switch how {
			case "panic":
				var pages []string
				return pages[3], nil
			case "unavailable":
				return "", fmt.Errorf("print service: %w", kind.Unavailable)
			default:
				return "", kagzi.Permanent(fmt.Errorf("template %q: <script>alert(\"no\")</script> has no closing "+
					"brace: %w", how, kind.Validation))
			}
		}, kagzi.RetryPolicy{MaxAttempts: 3, Backoff: 10 * time.Millisecond})
	})
	topic.Consume(office, Sorter, sort)
}

func checkout(ctx kagzi.Context, o Order) (Receipt, error) {
	payment, err := kagzi.Step(ctx, "authorize", func(context.Context) (string, error) {
		if o.Declined {
			return "", kagzi.Permanent(fmt.Errorf("card of %s ends in 4242 and was declined: %w", o.Customer, Declined))
		}
		return "pay-" + o.ID, nil
	})
	if err != nil {
		return Receipt{}, err
	}
	if !o.Quick {
		if err := kagzi.Sleep(ctx, "cooling-off", 14*24*time.Hour); err != nil {
			return Receipt{}, err
		}
	}
	parcel, err := kagzi.RunChild(ctx, "ship", Ship, o)
	if err != nil {
		return Receipt{}, err
	}
	return Receipt{o.ID, payment, parcel, ctx.Now()}, nil
}

func ship(ctx kagzi.Context, o Order) (string, error) {
	err := kagzi.Do(ctx, "label", func(ctx context.Context) error {
		if o.Away && kagzi.CurrentStep(ctx).Attempt < 3 {
			return fmt.Errorf("carrier answers 503: %w", kind.Unavailable)
		}
		return nil
	}, kagzi.RetryPolicy{MaxAttempts: 4, Backoff: 40 * time.Millisecond, NoJitter: true})
	return "parcel-" + o.ID, err
}

func approval(ctx kagzi.Context, o Order) (string, error) {
	if err := kagzi.Do(ctx, "ask", func(context.Context) error { return nil }); err != nil {
		return "", err
	}
	ok, err := kagzi.WaitSignal(ctx, Approved, kagzi.Timeout(7*24*time.Hour))
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("order %s: approved %v", o.ID, ok), nil
}

func travel(ctx kagzi.Context, t Trip) (string, error) {
	for _, part := range []string{"flight", "hotel"} {
		if err := kagzi.Do(ctx, part, func(context.Context) error { return nil }); err != nil {
			return "", err
		}
		kagzi.Compensate(ctx, part, Undo.With(part+" of "+t.Traveller))
	}
	return kagzi.Step(ctx, "car", func(context.Context) (string, error) {
		if t.SoldOut {
			return "", kagzi.Permanent(errors.New("no car is left in " + t.To))
		}
		return "booked " + t.To, nil
	})
}

// imports stays in its step as long as its worker lives, so that a page has a run to show that runs.
func imports(ctx kagzi.Context, pages int) (int, error) {
	return kagzi.Step(ctx, "fetch pages", func(ctx context.Context) (int, error) {
		if pages < 100 {
			return pages, nil
		}
		if err := kagzi.SetProgress(ctx, fmt.Sprintf("%d of %d pages", pages*2/5, pages), 0.4); err != nil {
			return 0, err
		}
		<-ctx.Done()
		return 0, context.Cause(ctx)
	})
}

func report(ctx kagzi.Context, _ string) (int, error) {
	regions := []string{"north", "east", "south", "west"}
	sums, err := kagzi.Map(ctx, "regions", regions, func(ctx kagzi.Context, region string) (int, error) {
		return kagzi.Step(ctx, "sum", func(context.Context) (int, error) { return len(region) * 1000, nil })
	})
	total := 0
	for _, n := range sums {
		total += n
	}
	return total, err
}

func summary(ctx kagzi.Context, text string) (string, error) {
	return kagzi.Step(ctx, "ask model", func(context.Context) (string, error) { return "in short: " + text, nil },
		kagzi.Limit("openai"))
}

func sort(ctx kagzi.Context, counts map[string]int) (map[string]int, error) {
	mails, err := topic.Peek(ctx, "new", Mailed, 100)
	if err != nil || len(mails) == 0 {
		return counts, err
	}
	if counts == nil {
		counts = map[string]int{}
	}
	for _, m := range mails {
		counts[m.Payload.From]++
	}
	return counts, topic.Reserve(ctx, "new", mails...)
}

package deeds

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/internal/explain"
)

// ofLimits returns what can be done to the limits of queues, of keys, and on steps.
func ofLimits() []Deed {
	return []Deed{setQueue(), resetQueue(), setKey(), setLimit(), resetLimit(), deleteLimit()}
}

// limits are the values of all fields of limits. A deed has some of them.
type limits struct {
	most, weight int
	rate         admin.Rate
	eachKey      admin.KeyLimits
	on           bool // the queue's Hold, the limit's HonorRetryAfter
}

// setting is a deed that sets limits. now returns those that are set, and whether some are; set sets them, and says
// what they are.
func setting(d Deed, now func(context.Context, Asked) (limits, bool, error),
	set func(context.Context, Asked, limits) (Done, error),
) Deed {
	d.Verb, d.Past, d.Keeps = "set", "set", true
	name := func(a Asked) string { return a.Values.Get(string(d.Object)) }
	d.Valid = func(a Asked) error {
		for _, prefix := range []string{"", "key-"} {
			if a.Values.number(prefix+"burst") > 0 && a.Values.rate(prefix).Starts == 0 {
				return mistake("{%sburst} needs a rate: give {%[1]srate}, too", prefix)
			}
		}
		return nil
	}
	d.Look = func(ctx context.Context, a Asked, v *View) error {
		if v.Name = name(a); v.Name == "" {
			return nil
		}
		l, _, err := now(ctx, a)
		for name, value := range map[string]string{
			"most": above(l.most, 0), "weight": above(l.weight, 0), "key-most": above(l.eachKey.MaxRunning, 0),
			"rate": typedRate(l.rate), "burst": above(l.rate.Burst, 1), "key-rate": typedRate(l.eachKey.Rate),
			"key-burst": above(l.eachKey.Rate.Burst, 1), "hold": box(l.on), "honor": box(l.on),
		} {
			v.field(name).Value = value
		}
		return err
	}
	d.Do = func(ctx context.Context, a Asked) (Done, error) {
		_, found, err := now(ctx, a)
		if err != nil {
			return Done{}, err
		}
		if found && a.Values.Has("new-queue", "new-key", "new-limit") {
			return Done{}, mistake("%s %s has limits already, which this would replace: change those from the list",
				d.Object, name(a))
		}
		in := a.Values
		return set(ctx, a, limits{
			in.number("most"), in.number("weight"), in.rate(""),
			admin.KeyLimits{MaxRunning: in.number("key-most"), Rate: in.rate("key-")},
			in.Has("hold", "honor"),
		})
	}
	return d
}

// of is a field that names the limited thing: an argument of a command.
func of(name, label string) Field {
	return Field{Name: name, Flag: "-", Label: label, About: true, Required: "give its name"}
}

func most(prefix, label, help string) Field {
	return Field{
		Name: prefix + "most", Flag: prefix + "max-running", Label: label, Kind: Count, Hint: "any number", Help: help,
	}
}

func rate(prefix, label, what string) Field {
	return Field{
		Name: prefix + "rate", Label: label, Kind: Rate, Hint: "10/s, 600/m or 5/10s",
		Help: "How often " + what + " may start: 10/s, 600/m, 5/10s. 0 or empty: any number.",
	}
}

func burst(prefix, label string) Field {
	return Field{
		Name: prefix + "burst", Label: label + ": burst", Kind: Count, Hint: "1",
		Help: "How many may start at once after a time with fewer.",
	}
}

// above writes a number that is greater than one that need not be said.
func above(n, than int) string {
	if n <= than {
		return ""
	}
	return strconv.Itoa(n)
}

// box writes a field of kind Check.
func box(is bool) string {
	if is {
		return "1"
	}
	return ""
}

// typedRate writes a rate without its burst in the form that is read; nothing for none.
func typedRate(r admin.Rate) string {
	if r.Starts == 0 {
		return ""
	}
	r.Burst = 0
	return explain.Rate(r, func(d time.Duration) string { return strings.ReplaceAll(duration.Format(d), " ", "") })
}

func setQueue() Deed {
	return setting(Deed{
		Object: Queue, Title: "Limits of queue", Button: "Set the limits", Short: "Set limits of a queue",
		Says: []string{"The limits of a queue are for all workers together. Runs under way go on."},
		Fields: []Field{
			of("queue", "Queue"), most("", "Runs at once", "How many runs may have a slot at once."),
			rate("", "Rate", "runs"), burst("", "Rate"),
			most("key-", "Runs at once of each key", "How many runs of one key may have a slot at once."),
			rate("key-", "Rate of each key", "runs of one key"), burst("key-", "Rate of each key"),
			{
				Name: "hold", Label: "Runs keep their slots while they sleep or wait", Kind: Check,
				Help: "Runs keep their slots while they sleep or wait.",
			},
		},
	}, func(ctx context.Context, a Asked) (l limits, found bool, err error) {
		all, err := a.admin().Queues.List(ctx)
		i := slices.IndexFunc(all, func(q admin.QueueInfo) bool { return q.Queue == a.Values.Get("queue") })
		if i < 0 {
			return l, false, err
		}
		q := all[i].QueueLimits
		return limits{most: q.MaxRunning, rate: q.Rate, eachKey: q.EachKey, on: q.Hold}, true, err
	}, func(ctx context.Context, a Asked, l limits) (Done, error) {
		q := admin.QueueLimits{
			Queue: a.Values.Get("queue"), MaxRunning: l.most, Rate: l.rate, EachKey: l.eachKey, Hold: l.on,
		}
		said := fmt.Sprintf("queue %s: %s running, rate %s, each key %s, hold %s", q.Queue, atMost(l.most),
			RateText(l.rate, a.Took), KeyText(l.eachKey, a.Took), YesNo(l.on))
		return Done{Said: said, Result: q}, a.admin().Queues.Set(ctx, q, onlyWhy(a)...)
	})
}

func setKey() Deed {
	return setting(Deed{
		Object: Key, Title: "Limits of key", Button: "Set the limits", Short: "Set limits of a key",
		Says: []string{"The limits of a key of a queue apply in place of those of each key. Without one, what the " +
			"queue says for each key holds. Runs under way go on."},
		Fields: []Field{
			{
				Name: "queue", Label: "Queue", Letter: "q", Arg: "NAME", Help: "The name of the queue.",
				About: true, Required: "give the queue of the key",
			},
			of("key", "Key"), most("", "Runs at once", "How many runs of the key may have a slot at once."),
			rate("", "Rate", "runs of the key"), burst("", "Rate"),
			{
				Name: "weight", Label: "Weight", Kind: Count, Hint: "1",
				Help: "How many runs the key starts when it is its turn. Empty: one.",
			},
		},
	}, func(ctx context.Context, a Asked) (l limits, found bool, err error) {
		queue, key := a.Values.Get("queue"), a.Values.Get("key")
		if queue == "" {
			return l, false, nil
		}
		// the key itself is the first with its prefix
		all, err := a.admin().Keys.List(ctx, admin.KeyFilter{Queue: queue, Prefix: key, Limit: 1})
		if err != nil || len(all) == 0 || all[0].Key != key {
			return l, false, err
		}
		k := all[0].Limits
		return limits{most: k.MaxRunning, weight: k.Weight, rate: k.Rate}, k != admin.KeyLimits{}, nil
	}, func(ctx context.Context, a Asked, l limits) (Done, error) {
		queue, key := a.Values.Get("queue"), a.Values.Get("key")
		k := admin.KeyLimits{MaxRunning: l.most, Weight: l.weight, Rate: l.rate}
		text := KeyText(k, a.Took)
		if k == (admin.KeyLimits{}) {
			text = "no limits of its own"
		}
		return Done{Said: fmt.Sprintf("key %s of queue %s: %s", key, queue, text), Result: k},
			a.admin().Keys.Set(ctx, queue, kagzi.Key(key), k, onlyWhy(a)...)
	})
}

func setLimit() Deed {
	return setting(Deed{
		Object: Limit, Title: "Limit", Button: "Set the limit", Short: "Set a limit on steps",
		Says: []string{"All steps that name the limit share it, in all workers together. Without a rate and a number " +
			"every step may begin: those that name a limit which was not set wait. Steps under way go on."},
		Fields: []Field{
			of("limit", "Name"), most("", "Steps at once", "How many steps may be under way at once."),
			rate("", "Rate", "steps"), burst("", "Rate"),
			{
				Name: "honor", Flag: "honor-retry-after", Label: "Honor Retry-After", Kind: Check,
				Help: "A step that fails with RetryAfter stops all others for that time.",
			},
		},
	}, func(ctx context.Context, a Asked) (limits, bool, error) {
		l, found, err := findLimit(ctx, a.Client, a.Values.Get("limit"))
		return limits{most: l.MaxRunning, rate: RateOf(l), on: l.HonorRetryAfter}, found, err
	}, func(ctx context.Context, a Asked, l limits) (Done, error) {
		s := admin.StepLimit{Name: a.Values.Get("limit"), MaxRunning: l.most, Rate: l.rate, HonorRetryAfter: l.on}
		said := fmt.Sprintf("limit %s: rate %s, %s at once", s.Name, RateText(l.rate, a.Took), atMost(l.most))
		return Done{Said: said, Result: s}, a.admin().Limits.Set(ctx, s, onlyWhy(a)...)
	})
}

// findLimit returns the limit of that name, if there is one.
func findLimit(ctx context.Context, c *kagzi.Client, name string) (l admin.LimitInfo, found bool, err error) {
	for after := ""; ; {
		page, err := admin.New(c).Limits.List(ctx, after, 0)
		if err != nil || len(page) == 0 {
			return l, false, err
		}
		for _, l := range page {
			if l.Name == name {
				return l, true, nil
			}
		}
		after = page[len(page)-1].Name
	}
}

// RateOf returns the rate of a limit.
func RateOf(l admin.LimitInfo) admin.Rate {
	if l.Every == 0 {
		return admin.Rate{}
	}
	return admin.Rate{Starts: 1, Per: l.Every, Burst: l.Burst}
}

func deleteLimit() Deed {
	return Deed{
		Verb: "delete", Object: Limit, Past: "deleted", Title: "Delete limit", Danger: true, Slow: true,
		Short: "Delete a limit that no step uses",
		Says: []string{
			"Delete deletes a limit. A step that names a deleted limit waits: delete it once no code names it.",
			"While steps wait for the limit or are under way, it is not deleted: to lift it then, set it without a " +
				"rate and a number.",
		},
		Fields: []Field{{Name: "limit", Flag: "-", Kind: Hidden}},
		Look: func(_ context.Context, a Asked, v *View) error {
			v.Name = a.Values.Get("limit")
			v.field("limit").Value = v.Name
			return nil
		},
		Do: func(ctx context.Context, a Asked) (Done, error) {
			name := a.Values.Get("limit")
			return Done{Said: "deleted " + name}, a.admin().Limits.Delete(ctx, name, onlyWhy(a)...)
		},
	}
}

// RateText writes a rate. took writes how long the time is if it is not that of one unit.
func RateText(r admin.Rate, took func(time.Duration) string) string {
	if r.Starts == 0 {
		return "-"
	}
	return explain.Rate(r, took)
}

// KeyText writes the limits of a key.
func KeyText(l admin.KeyLimits, took func(time.Duration) string) string {
	var parts []string
	if l.MaxRunning > 0 {
		parts = append(parts, fmt.Sprintf("at most %d running", l.MaxRunning))
	}
	if l.Rate.Starts > 0 {
		parts = append(parts, RateText(l.Rate, took))
	}
	if l.Weight > 0 {
		parts = append(parts, fmt.Sprintf("weight %d", l.Weight))
	}
	return cmp.Or(strings.Join(parts, ", "), "-")
}

func atMost(n int) string {
	if n == 0 {
		return "any number"
	}
	return "at most " + strconv.Itoa(n)
}

// YesNo writes whether something is so.
func YesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

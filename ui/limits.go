package ui

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/deeds"
	"github.com/kagzi/kagzi/internal/explain"
	"github.com/kagzi/kagzi/ui/internal/web"
)

// limitPages are about limits and pauses, which keep runs and steps from going on at once.
type limitPages struct {
	admin *admin.Client
}

// pages are those pages.
func (p *limitPages) pages() []web.Page {
	return []web.Page{
		{
			Path: "/limits", Action: asks(View, OnLimit), Template: "limits",
			Live: []string{"pauses", "queue-rows", "limit-rows"}, Look: p.limits,
		},
		{
			Path: "/queues/{name}", Action: asks(View, OnQueue), Template: "keys",
			Live: []string{"queue-state", "key-rows", "changed"}, Look: p.queueKeys,
		},
		{
			Path: "/groups", Action: asks(View, OnGroup), Template: "keys",
			Live: []string{"queue-state", "key-rows", "changed"}, Look: p.groupKeys,
		},
	}
}

// A limitList is the view model of the page of limits and pauses.
type limitList struct {
	Pauses     []pauseRow
	MorePauses int
	Queues     []queueRow
	MoreQueues int
	Limits     []admin.LimitInfo
	Next       string // path of the next page of the limits of steps; empty on the last one
	First      bool
	Empty      bool // there is nothing at all
}

// A pauseRow is a pause, with what it holds up.
type pauseRow struct {
	admin.Pause
	Runs  string // path of the list of its active runs
	Held  int    // runs that are due, and that it holds up
	More  bool
	Known bool // Held is known

	Consumer bool // Runs is the page of a consumer, whose events accumulate
}

// A queueRow is a queue, with the use of its limits if it has some.
type queueRow struct {
	admin.QueueInfo
	Limited bool
	Stats   bool // Due and Running are known
	Due     int
	DueMore bool
	Active  int // runs that are being executed
	Paused  bool
}

func (p *limitPages) limits(ctx context.Context, q web.Query) (any, error) {
	v := limitList{First: q.Get("after") == ""}
	rows, stats, pauses, err := p.queueRows(ctx)
	if err != nil {
		return nil, err
	}
	if v.Limits, err = p.admin.Limits.List(ctx, q.Get("after"), pageSize+1); err != nil {
		return nil, err
	}
	if shown, more := bounded(v.Limits, pageSize); more > 0 {
		v.Limits, v.Next = shown, q.With("after", shown[pageSize-1].Name)
	}
	limited := slices.ContainsFunc(rows, func(r queueRow) bool { return r.Limited })
	v.Empty = !limited && len(pauses)+len(v.Limits) == 0 && v.First
	v.Queues, v.MoreQueues = bounded(rows, mostRows)
	slices.SortStableFunc(pauses, func(a, b admin.Pause) int { return b.Since.Compare(a.Since) })
	pauses, v.MorePauses = bounded(pauses, mostRows)
	v.Pauses, err = p.pauseRows(ctx, pauses, stats)
	return v, err
}

// queueRows reads the queues, with what they are made of.
func (p *limitPages) queueRows(ctx context.Context) (
	rows []queueRow, stats admin.Stats, pauses []admin.Pause, err error,
) {
	if stats, err = p.admin.Stats(ctx); err != nil {
		return nil, stats, nil, err
	}
	if pauses, err = p.admin.Pauses.List(ctx); err != nil {
		return nil, stats, nil, err
	}
	limited, err := p.admin.Queues.List(ctx)
	return queueRowsOf(limited, stats, pauses), stats, pauses, err
}

// queueRowsOf returns the queues with limits, and those that have runs or workers, of which those with limits come
// first.
func queueRowsOf(limited []admin.QueueInfo, stats admin.Stats, pauses []admin.Pause) []queueRow {
	var rows []queueRow
	at := map[string]int{}
	row := func(name string) *queueRow {
		if _, ok := at[name]; !ok {
			at[name] = len(rows)
			rows = append(rows, queueRow{QueueInfo: admin.QueueInfo{QueueLimits: admin.QueueLimits{Queue: name}}})
		}
		return &rows[at[name]]
	}
	for _, q := range limited {
		r := row(q.Queue)
		r.QueueInfo, r.Limited = q, true
	}
	for _, w := range stats.Workflows {
		r := row(w.Queue)
		r.Stats, r.Due, r.DueMore, r.Active = true, r.Due+w.Due, r.DueMore || w.DueMore, r.Active+w.Running
	}
	for _, q := range stats.Queues {
		row(q.Queue).Stats = true
	}
	for _, p := range pauses {
		if i, ok := at[p.Queue]; ok && p.Key == "" && p.Workflow == "" {
			rows[i].Paused = true
		}
	}
	slices.SortStableFunc(rows, func(a, b queueRow) int {
		return cmp.Or(-compareBool(a.Limited, b.Limited), cmp.Compare(b.Due, a.Due), cmp.Compare(a.Queue, b.Queue))
	})
	return rows
}

// mostAsked is how many pauses of keys and groups are asked for the runs that they hold up. Each costs a query.
const mostAsked = 20

// pauseRows says what the pauses hold up. Of several that hold up the same runs each has them.
func (pages *limitPages) pauseRows(ctx context.Context, pauses []admin.Pause, stats admin.Stats) ([]pauseRow, error) {
	asked := 0
	var rows []pauseRow
	for _, p := range pauses {
		r := pauseRow{Pause: p}
		link := web.Query{URL: "/runs"}
		switch {
		case p.Key != "" || p.Group != "":
			f := admin.KeyFilter{Queue: p.Queue, Groups: p.Group != "", Prefix: p.Key + p.Group, Limit: 1}
			r.Runs = link.With("status", "active", "queue", p.Queue, "key", p.Key, "group", p.Group)
			if name, ok := strings.CutPrefix(p.Group, consumerGroup); ok {
				r.Runs, r.Consumer = (&url.URL{Path: "/consumers/" + name}).EscapedPath(), true
				break
			}
			if asked++; asked > mostAsked {
				break
			}
			keys, err := pages.admin.Keys.List(ctx, f)
			if err != nil {
				return nil, err
			}
			if len(keys) > 0 && keys[0].Key == f.Prefix {
				r.Known, r.Held = true, keys[0].Waiting
			}
		default:
			r.Runs = link.With("status", "active", "queue", p.Queue, "workflow", p.Workflow)
			for _, w := range stats.Workflows {
				if (p.Queue == "" || p.Queue == w.Queue) && (p.Workflow == "" || p.Workflow == w.Workflow) {
					r.Held += w.Paused
				}
			}
			r.Known = true
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// consumerGroup is how the name of the group begins that a consumer has by itself.
const consumerGroup = "consumer "

// targetText names what a pause stops.
func targetText(t admin.Target) string {
	if consumer, ok := strings.CutPrefix(t.Group, consumerGroup); ok {
		return "Consumer " + consumer
	}
	text := explain.Target(t)
	return strings.ToUpper(text[:1]) + text[1:]
}

// rateText says how often something may start: "50 a second". It is empty for any number.
func rateText(r admin.Rate) string {
	if r.Starts == 0 {
		return ""
	}
	per := cmp.Or(r.Per, time.Second)
	text := fmt.Sprintf("%s in %s", count(r.Starts), duration(per))
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{time.Second, "a second"}, {time.Minute, "a minute"}, {time.Hour, "an hour"}, {day, "a day"}} {
		// The time between two starts is stored, rounded up to a microsecond.
		n := float64(r.Starts) * float64(u.unit) / float64(per)
		if whole := math.Round(n); whole >= 1 && math.Abs(n-whole) < min(whole/1000, 0.05) {
			text = count(int(whole)) + " " + u.name
			break
		}
	}
	if r.Burst > 1 {
		text += fmt.Sprintf(", %s at once", count(r.Burst))
	}
	return text
}

// keyLimitsText says what the limits of a key are; it is empty if there are none.
func keyLimitsText(l admin.KeyLimits) string {
	var parts []string
	if l.MaxRunning > 0 {
		parts = append(parts, strconv.Itoa(l.MaxRunning)+" running")
	}
	if rate := rateText(l.Rate); rate != "" {
		parts = append(parts, rate)
	}
	if l.Weight > 1 {
		parts = append(parts, "weight "+strconv.Itoa(l.Weight))
	}
	return strings.Join(parts, ", ")
}

// limitOrigin and queueOrigin say where limits come from that the code declares.
func limitOrigin(l admin.LimitInfo) string { return deeds.LimitOrigin(l, duration) }

func queueOrigin(q admin.QueueInfo) string { return deeds.QueueOrigin(q, duration) }

// stepRate says how often steps with a limit may begin.
func stepRate(l admin.LimitInfo) string {
	if l.Every == 0 {
		return ""
	}
	return rateText(admin.Rate{Starts: 1, Per: l.Every, Burst: l.Burst})
}

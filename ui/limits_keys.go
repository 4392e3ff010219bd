package ui

import (
	"context"
	"slices"

	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/ui/internal/web"
)

// keyOrders are the orders of keys by the value of the field order.
var keyOrders = map[string]admin.KeyOrder{"": admin.LongestWaiting, "fullest": admin.Fullest, "name": admin.ByKey}

// A keyList is the view model of the page of a queue's keys, or of the groups.
type keyList struct {
	Changed  changes  // of the queue; of the groups, those of any
	Queue    queueRow // empty for groups
	Groups   bool
	Wrong    string
	Keys     []keyRow
	Order    string
	Filtered bool
	Next     string
	First    bool
	Cut      bool // there may be more keys, and this order has no pages

	Pauses     []admin.Pause // of the queue, its workflows and keys, or of groups
	MorePauses int
}

// A keyRow is a key with the limit that holds for it.
type keyRow struct {
	admin.KeyInfo
	Most  int  // runs at once; zero: any number
	More  bool // more may be waiting than were counted
	Queue string
	Runs  string // path of its active runs

	Paused bool
}

func (p *limitPages) queueKeys(ctx context.Context, q web.Query) (any, error) {
	name := q.Path("name")
	rows, stats, pauses, err := p.queueRows(ctx)
	if err != nil {
		return nil, err
	}
	v := keyList{Queue: queueRow{QueueInfo: admin.QueueInfo{QueueLimits: admin.QueueLimits{Queue: name}}}}
	for _, r := range rows {
		if r.Queue == name {
			v.Queue = r
		}
	}
	if err = p.fillKeys(ctx, q, &v); err == nil {
		v.Changed, err = changed(ctx, p.admin, admin.AuditQueue, name)
	}
	v.pausedBy(pauses, func(p admin.Pause) bool {
		here := func(w admin.WorkflowStats) bool { return w.Queue == name && w.Workflow == p.Workflow }
		return p.All || p.Queue == name || p.Queue == "" && slices.ContainsFunc(stats.Workflows, here)
	})
	return v, err
}

func (p *limitPages) groupKeys(ctx context.Context, q web.Query) (any, error) {
	v := keyList{Groups: true}
	pauses, err := p.admin.Pauses.List(ctx)
	if err == nil {
		err = p.fillKeys(ctx, q, &v)
	}
	if err == nil {
		v.Changed, err = changed(ctx, p.admin, admin.AuditGroup, "")
	}
	v.pausedBy(pauses, func(p admin.Pause) bool { return p.All || p.Group != "" })
	return v, err
}

// mostPauses is how many pauses stand at the top of a page.
const mostPauses = 8

// pausedBy puts the pauses that concern the page at its top, the newest first, and marks the keys that they stop.
func (v *keyList) pausedBy(pauses []admin.Pause, concerns func(admin.Pause) bool) {
	pauses = slices.DeleteFunc(pauses, func(p admin.Pause) bool { return !concerns(p) })
	slices.SortStableFunc(pauses, func(a, b admin.Pause) int { return b.Since.Compare(a.Since) })
	for i, k := range v.Keys {
		v.Keys[i].Paused = slices.ContainsFunc(pauses, func(p admin.Pause) bool { return p.Key+p.Group == k.Key })
	}
	v.Pauses, v.MorePauses = bounded(pauses, mostPauses)
}

// fillKeys reads a page of the keys. Only the order by name has pages.
func (p *limitPages) fillKeys(ctx context.Context, q web.Query, v *keyList) error {
	v.Order, v.Filtered, v.First = q.Get("order"), q.Has("prefix"), q.Get("after") == ""
	order, ok := keyOrders[v.Order]
	if !ok {
		v.Wrong = "There is no such order: use fullest or name, or leave it out."
		return nil
	}
	f := admin.KeyFilter{
		Queue: v.Queue.Queue, Groups: v.Groups, Prefix: q.Get("prefix"), Order: order,
		Limit: mostRows + 1,
	}
	if order == admin.ByKey {
		f.After, f.Limit = q.Get("after"), pageSize+1
	}
	keys, err := p.admin.Keys.List(ctx, f)
	if err == nil && len(keys) == 0 && v.Order == "" { // none waits
		v.Order, order = "name", admin.ByKey
		f.Order, f.Limit = admin.ByKey, pageSize+1
		keys, err = p.admin.Keys.List(ctx, f)
	}
	if err != nil {
		return err
	}
	shown, more := bounded(keys, f.Limit-1)
	for _, k := range shown {
		r := keyRow{KeyInfo: k, Most: k.Limits.MaxRunning, Queue: v.Queue.Queue}
		r.More = k.Waiting >= min(max(20_000/f.Limit, 20), 1000) // where the library stops to count
		r.Runs = web.Query{URL: "/runs"}.With("status", "active", "queue", r.Queue, "key", k.Key)
		if v.Groups {
			r.Runs = web.Query{URL: "/runs"}.With("status", "active", "group", k.Key)
		}
		if r.Most == 0 {
			r.Most = v.Queue.EachKey.MaxRunning
		}
		if v.Groups && r.Most == 0 {
			r.Most = 1
		}
		v.Keys = append(v.Keys, r)
	}
	switch {
	case more > 0 && order == admin.ByKey:
		v.Next = q.With("order", "name", "after", shown[len(shown)-1].Key)
	case order != admin.ByKey:
		v.Cut = more > 0
	}
	if order == admin.LongestWaiting { // those that wait for the same time, and those that do not wait
		slices.SortStableFunc(v.Keys, func(a, b keyRow) int { return compareBool(b.Waiting > 0, a.Waiting > 0) })
	}
	return nil
}

// Noun names what the list has.
func (v keyList) Noun() string {
	if v.Groups {
		return "Group"
	}
	return "Key"
}

// InUse is how many runs of the queue have a slot, or, without limits, are being executed.
func (r queueRow) InUse() int {
	if r.Limited {
		return r.Running
	}
	return r.Active
}

package ui

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/ui/internal/web"
)

// An auditPage is the audit log.
type auditPage struct {
	admin *admin.Client
	names *runNames
}

// pages are that page.
func (p *auditPage) pages() []web.Page {
	return []web.Page{{
		Path: "/audit", Action: asks(View, OnAudit), Template: "audit", Live: []string{"audit-rows"},
		Look: p.audit,
	}}
}

// auditKinds are the kinds of objects in the order of the field.
var auditKinds = []admin.AuditKind{
	admin.AuditRun, admin.AuditSchedule, admin.AuditQueue, admin.AuditKey, admin.AuditGroup, admin.AuditWorkflow,
	admin.AuditAll, admin.AuditLimit,
	admin.AuditWorker, admin.AuditConsumer,
}

const (
	auditRows = 100
	// lastChanges is how many entries the page of an object shows.
	lastChanges = 5
)

// An auditList is the view model of the audit log.
type auditList struct {
	Entries  []auditRow
	Kinds    []admin.AuditKind
	Filtered bool
	Next     string // path of the next page; empty on the last one
	First    bool
}

// An auditRow is an entry of the log.
type auditRow struct {
	admin.AuditEntry
	To string // path of its object; empty if it has no page
}

// Object says in words what the entry is about: "queue shop", "key tenant-7 of queue shop".
func (r auditRow) Object() string {
	text := string(r.Kind)
	switch {
	case r.Kind == admin.AuditAll:
		return "all runs"
	case r.Kind == admin.AuditRun && r.ExternalID != "":
		return "run " + string(r.ExternalID)
	case r.Kind == admin.AuditRun:
		return "run " + short(kagzi.RunID(r.Name))
	case r.Kind == admin.AuditLimit:
		text = "limit on steps"
	case r.Kind == admin.AuditWorker:
		return "worker " + short(kagzi.RunID(r.Name))
	}
	text += " " + r.Name
	if r.Queue != "" {
		text += " of queue " + r.Queue
	}
	return text
}

// Done is the change in words: "forced offline".
func (r auditRow) Done() string {
	return strings.ToLower(strings.ReplaceAll(r.Action, "_", " "))
}

// othersOf returns the runs that the entries refer to besides those that they are about.
func othersOf(entries []admin.AuditEntry) (ids []kagzi.RunID) {
	for _, e := range entries {
		ids = append(ids, e.Other)
	}
	return ids
}

func auditRowOf(e admin.AuditEntry) auditRow {
	r := auditRow{AuditEntry: e}
	switch e.Kind {
	case admin.AuditRun:
		r.To = "/runs/" + e.Name
	case admin.AuditSchedule:
		r.To = at("/schedules/", e.Name)
	case admin.AuditQueue:
		r.To = at("/queues/", e.Name)
	case admin.AuditKey:
		r.To = at("/queues/", e.Queue)
	case admin.AuditGroup:
		r.To = "/groups"
	case admin.AuditWorker:
		r.To = "/workers/" + e.Name
	case admin.AuditConsumer:
		r.To = at("/consumers/", e.Name)
	case admin.AuditLimit, admin.AuditAll, admin.AuditWorkflow:
		r.To = "/limits"
	}
	return r
}

func (p *auditPage) audit(ctx context.Context, q web.Query) (any, error) {
	v := auditList{
		Kinds: auditKinds, Filtered: q.Has("kind", "name", "queue", "action", "actor", "since", "until"),
		First: q.Get("after") == "",
	}
	f := admin.AuditFilter{
		Kind: admin.AuditKind(q.Get("kind")), Name: q.Get("name"), Queue: q.Get("queue"), Action: q.Get("action"),
		Actor: q.Get("actor"), After: q.Get("after"), Limit: auditRows + 1,
	}
	if f.Kind != "" && !slices.Contains(auditKinds, f.Kind) {
		return nil, web.BadRequest("The log has no kind %q.", f.Kind)
	}
	for field, to := range map[string]*time.Time{"since": &f.Since, "until": &f.Until} {
		var err error
		if *to, err = past(q.Get(field), time.Now()); err != nil {
			return nil, err
		}
	}
	entries, err := p.admin.Audit(ctx, f)
	if errors.Is(err, kagzi.ErrNotFound) {
		return nil, web.BadRequest("The page before this one has gone: begin again with the newest changes.")
	}
	if err != nil {
		return nil, err
	}
	shown, more := bounded(entries, auditRows)
	for _, e := range shown {
		v.Entries = append(v.Entries, auditRowOf(e))
	}
	if err := p.names.learn(ctx, othersOf(shown)...); err != nil {
		return nil, err
	}
	if more > 0 {
		v.Next = q.With("after", shown[len(shown)-1].ID)
	}
	return v, nil
}

// A changes is who changed an object last. A page shows it with the partial "changed":
//
//	{{template "changed" .V.Changed}}
type changes struct {
	Entries []auditRow
	All     string // path of the audit log of the object
	Keys    string // path of the audit log of a queue's keys; empty if it is about something else
	More    bool
}

// changed returns the last changes of an object.
func changed(ctx context.Context, client *admin.Client, kind admin.AuditKind, name string) (c changes, err error) {
	entries, err := client.Audit(ctx, admin.AuditFilter{Kind: kind, Name: name, Limit: lastChanges + 1})
	shown, more := bounded(entries, lastChanges)
	for _, e := range shown {
		c.Entries = append(c.Entries, auditRowOf(e))
	}
	c.More = more > 0
	c.All = "/audit?" + url.Values{"kind": {string(kind)}, "name": {name}}.Encode()
	if kind == admin.AuditQueue {
		c.Keys = "/audit?" + url.Values{"kind": {string(admin.AuditKey)}, "queue": {name}}.Encode()
	}
	return c, err
}

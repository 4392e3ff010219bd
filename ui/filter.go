package ui

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/deeds"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/ui/internal/web"
)

// The fields that select runs, named as the command line's flags. The rare ones are folded.
var (
	usualFields = []string{"id", "status", "workflow", "queue", "kind", "error", "since"}
	rareFields  = []string{
		"metadata", "waiting-on", "key", "group", "schedule", "parent", "until", "ended-since",
		"ended-until", "min-recoveries", "paused",
	}
	runFields = slices.Concat(usualFields, rareFields)
)

// statusNames are the statuses in the order of the tabs.
var statusNames = []string{"active", "pending", "running", "sleeping", "completed", "failed", "cancelled"}

// usualKinds are suggested for the field kind.
var usualKinds = []kind.Kind{
	kind.Network, kind.Timeout, kind.Database, kind.RateLimited, kind.Unavailable, kind.Unknown, kind.Panic,
	kind.NotFound, kind.Unauthorized, kind.BadRequest,
	kind.Validation, kind.BadInput, kind.Cancelled, kind.Deadline, kind.CrashLoop, kind.Compensation,
	kind.Nondeterminism, kind.Unreadable,
}

// fieldWords are the fields that select runs as a sentence names them; the others are named as they are.
var fieldWords = map[string]string{
	"id": "ID", "error": "error with", "since": "started since", "until": "started before", "metadata": "tags",
	"waiting-on": "waiting on", "parent": "children of",
	"ended-since": "ended since", "ended-until": "ended before", "min-recoveries": "workers died at least",
}

// criteria says what a filter selects: "status failed", "queue shop".
func criteria(filter string) (out []string) {
	values, err := url.ParseQuery(filter)
	if err != nil {
		return nil // planAll says so
	}
	for _, name := range runFields {
		value := strings.Join(values[name], ", ")
		switch {
		case value == "":
		case name == "paused":
			out = append(out, "paused themselves")
		default:
			out = append(out, cmp.Or(fieldWords[name], name)+" "+value)
		}
	}
	if out == nil {
		out = []string{"all runs of the namespace"}
	}
	return out
}

// selection returns the fields that select runs as a query, for the form of a change of all of them.
func selection(q web.Query) string {
	values := url.Values{}
	for _, name := range runFields {
		if q.Get(name) != "" {
			values[name] = q.Values[name]
		}
	}
	return values.Encode()
}

// runFilter returns the runs that the query selects.
func runFilter(q web.Query, now time.Time) (kagzi.RunFilter, error) {
	f := kagzi.RunFilter{
		Workflow: q.Get("workflow"), Queue: q.Get("queue"), Schedule: q.Get("schedule"), Key: kagzi.Key(q.Get("key")),
		Group: kagzi.Group(q.Get("group")), Kind: kind.Kind(q.Get("kind")), WaitingOn: q.Get("waiting-on"),
		ErrorText: q.Get("error"), Paused: q.Get("paused") != "",
	}
	var err error
	if n := q.Get("min-recoveries"); n != "" {
		if f.MinRecoveries, err = strconv.Atoi(n); err != nil || f.MinRecoveries < 1 {
			return f, web.BadRequest("%q is no number of workers: write 1 or more.", n)
		}
	}
	if id := q.Get("id"); deeds.IsRunID(id) {
		f.IDs = []kagzi.RunID{kagzi.RunID(id)}
	} else {
		f.ID = kagzi.ID(id)
	}
	for _, name := range q.Values["status"] {
		same, ok := deeds.Statuses[strings.ToLower(strings.TrimSpace(name))]
		if !ok && name != "" {
			return f, web.BadRequest("There is no status %q: use %s.", name, strings.Join(statusNames, ", "))
		}
		f.Status = append(f.Status, same...)
	}
	for field, to := range map[string]*kagzi.RunID{"parent": &f.Parent, "after": &f.After} {
		if *to = kagzi.RunID(q.Get(field)); *to != "" && !deeds.IsRunID(string(*to)) {
			return f, web.BadRequest("%q is no run ID: that is a UUID.", *to)
		}
	}
	if f.Metadata, err = pairs(q.Values["metadata"]); err != nil {
		return f, err
	}
	for field, to := range map[string]*time.Time{
		"since": &f.Since, "until": &f.Until, "ended-since": &f.EndedSince,
		"ended-until": &f.EndedUntil,
	} {
		if *to, err = past(q.Get(field), now); err != nil {
			return f, err
		}
	}
	return f, nil
}

// pairs reads tags: "tenant=acme, region=eu".
func pairs(texts []string) (map[string]string, error) {
	var out map[string]string
	for _, text := range texts {
		for tag := range strings.SplitSeq(text, ",") {
			if tag = strings.TrimSpace(tag); tag == "" {
				continue
			}
			name, value, ok := strings.Cut(tag, "=")
			if !ok || name == "" {
				return nil, web.BadRequest("The tag %q has no value: write it as name=value, and several with commas.",
					tag)
			}
			if out == nil {
				out = map[string]string{}
			}
			out[name] = value
		}
	}
	return out, nil
}

// past reads a time as a moment, or as its distance before now.
func past(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	t, err := deeds.ParseTime(s, now, -1, time.UTC)
	if err != nil {
		return t, web.BadRequest("%q is no time: %s.", s, deeds.TimeAdvice(time.UTC))
	}
	return t, nil
}

package ui

import (
	"context"
	"fmt"
	"html/template"
	"regexp"
	"sync"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/deeds"
	"github.com/kagzi/kagzi/ui/internal/web"
)

// runNames remember the IDs that applications have given to runs, so that a page that refers to a run names it by that
// ID. A run keeps its ID, so what is known stays true.
type runNames struct {
	client *kagzi.Client
	mu     sync.Mutex
	known  map[kagzi.RunID]kagzi.ID // empty for a run that has none, or that is not there any more
}

const (
	mostNames   = 10_000 // that are remembered
	mostLearned = 500    // that one page looks up
)

// learn looks up the names of the runs that are not known, by their keys.
func (n *runNames) learn(ctx context.Context, ids ...kagzi.RunID) error {
	ids = n.unknown(ids)
	if len(ids) == 0 {
		return nil
	}
	runs, err := n.client.List(ctx, kagzi.RunFilter{IDs: ids, Limit: len(ids)})
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, id := range ids {
		n.keep(id, "")
	}
	for _, r := range runs {
		n.keep(r.ID, r.ExternalID)
	}
	return nil
}

// unknown returns the runs whose names are not known, each once and mostLearned at most.
func (n *runNames) unknown(ids []kagzi.RunID) (out []kagzi.RunID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	seen := map[kagzi.RunID]bool{"": true}
	for _, id := range ids {
		if _, known := n.known[id]; !known && !seen[id] && len(out) < mostLearned {
			seen[id] = true
			out = append(out, id)
		}
	}
	return out
}

// note remembers the names of runs that a page has read.
func (n *runNames) note(runs ...kagzi.RunInfo) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range runs {
		n.keep(r.ID, r.ExternalID)
	}
}

// keep remembers a name, and forgets another one if there are too many. The caller holds the lock.
func (n *runNames) keep(id kagzi.RunID, name kagzi.ID) {
	if n.known == nil {
		n.known = map[kagzi.RunID]kagzi.ID{}
	}
	n.known[id] = name
	for other := range n.known {
		if len(n.known) <= mostNames {
			return
		}
		if other != id {
			delete(n.known, other)
		}
	}
}

// of returns the ID that the application has given to the run; empty if there is none, or if it is not known.
func (n *runNames) of(id kagzi.RunID) kagzi.ID {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.known[id]
}

// text returns what people call the run: its own ID, or a part of its run ID.
func (n *runNames) text(id kagzi.RunID) string {
	if name := n.of(id); name != "" {
		return first(60, string(name))
	}
	return short(id)
}

// html is text for a page.
func (n *runNames) html(id kagzi.RunID) template.HTML {
	if n.of(id) != "" {
		return template.HTML(template.HTMLEscapeString(n.text(id)))
	}
	return template.HTML(`<code>` + template.HTMLEscapeString(n.text(id)) + `</code>`)
}

// link returns a link to the run with its name.
func (n *runNames) link(links web.Links, id kagzi.RunID) string {
	return fmt.Sprintf(`<a href="%s" title="%s">%s</a>`, template.HTMLEscapeString(links.To("/runs/", id)),
		template.HTMLEscapeString(string(id)), n.html(id))
}

// namedLink returns a link to the run with its own ID, or with its run ID.
func (n *runNames) namedLink(links web.Links, name string) string {
	if deeds.IsRunID(name) {
		return n.link(links, kagzi.RunID(name))
	}
	return fmt.Sprintf(`<a href="%s">%s</a>`, template.HTMLEscapeString(links.To("/runs/", name)),
		template.HTMLEscapeString(first(60, name)))
}

// runID is a run ID in a text.
var runID = regexp.MustCompile(`[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// runsIn returns the runs that the texts of the library refer to.
func runsIn(texts ...string) (ids []kagzi.RunID) {
	for _, text := range texts {
		for _, id := range runID.FindAllString(text, mostLearned) {
			ids = append(ids, kagzi.RunID(id))
		}
	}
	return ids
}

// prose returns a text of the library in terms of the dashboard, with links to the runs and with times that it names.
func (n *runNames) prose(links web.Links, text string) template.HTML {
	return inProse(text, func(id kagzi.RunID) string { return n.link(links, id) })
}

// gist is prose on one line and without links.
func (n *runNames) gist(text string) template.HTML {
	return inProse(oneLine(text), func(id kagzi.RunID) string { return string(n.html(id)) })
}

package ui

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/deeds"
	"github.com/kagzi/kagzi/ui/internal/web"
)

// raw answers with a payload as it is, as a file: nothing of it is executed or shown by the browser as a page of this
// site.
func (p *runPage) raw(w http.ResponseWriter, r *http.Request) error {
	if p.payloads.hidden() {
		return web.Status(http.StatusForbidden, "This dashboard hides payloads.")
	}
	ctx, cancel := context.WithTimeout(r.Context(), web.LookTimeout)
	defer cancel()
	data, err := p.rawPayload(ctx, web.QueryOf(r, r.URL.Query()))
	if err == nil && len(data) == 0 {
		err = web.Status(http.StatusNotFound, "There is no such payload.")
	}
	if err != nil {
		return err
	}
	kind, extension := "application/octet-stream", "bin"
	if json.Valid(data) {
		kind, extension = "application/json", "json"
	}
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Content-Length", strconv.Itoa(len(data)))
	h.Set("Content-Disposition", fmt.Sprintf(`attachment; filename="%s.%s"`, "payload", extension))
	_, _ = w.Write(data) // the browser may have gone
	return nil
}

// rawPayload returns the payload that the query names.
func (p *runPage) rawPayload(ctx context.Context, q web.Query) ([]byte, error) {
	leave, ok := p.cache.Enter(ctx) // it is a look that no other page shares
	if !ok {
		return nil, web.ErrBusy
	}
	defer leave()
	ref, of := deeds.RefOf(q.Path("id")), q.Get("of")
	switch {
	case of == "message":
		return p.rawMessage(ctx, ref, q)
	case of != "input" && of != "output":
		return nil, web.BadRequest("There is no payload %q of a run: use input, output or message.", of)
	case q.Get("step") == "":
		run, err := p.client.Get(ctx, ref)
		if of == "input" {
			return run.Input, err
		}
		return run.Output, err
	}
	attempts, err := p.client.Steps(ctx, ref, kagzi.StepFilter{Steps: []string{q.Values.Get("step")}})
	if err != nil {
		return nil, err
	}
	for _, a := range attempts {
		if a.Step != q.Values.Get("step") || strconv.Itoa(a.Attempt) != q.Get("attempt") {
			continue
		}
		switch {
		case of == "input":
			return a.Input, nil
		case a.Type == "MARKER" || a.Type == "PEEK" || a.Type == "RESERVE": // Kagzi's own
			return nil, nil
		}
		return a.Output, nil
	}
	return nil, nil
}

// rawMessage returns the payload of a message.
func (p *runPage) rawMessage(ctx context.Context, ref kagzi.Ref, q web.Query) ([]byte, error) {
	for m, err := range p.eachMessage(ctx, ref, admin.MessageFilter{
		Signal: q.Values.Get("signal"), Request: q.Values.Get("request") == "true",
	}) {
		if err != nil || string(m.ID) == q.Values.Get("message") {
			return m.Payload, err
		}
	}
	return nil, nil
}

package ui

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/kagzi/kagzi"
)

// raw answers with a payload as it is, as a file: nothing of it is executed or shown by the browser as a page of this
// site.
func (d *dashboard) raw(w http.ResponseWriter, r *http.Request, who viewer) {
	if d.cfg.HidePayloads {
		d.fail(w, r, who, status(http.StatusForbidden, "This dashboard hides payloads."))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), lookTimeout)
	defer cancel()
	data, err := d.rawPayload(ctx, d.query(r, r.URL.Query()))
	if err == nil && len(data) == 0 {
		err = status(http.StatusNotFound, "There is no such payload.")
	}
	if err != nil {
		d.fail(w, r, who, err)
		return
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
}

// rawPayload returns the payload that the query names.
func (d *dashboard) rawPayload(ctx context.Context, q query) ([]byte, error) {
	leave, ok := d.cache.enter(ctx) // it is a look that nobody shares
	if !ok {
		return nil, errBusy
	}
	defer leave()
	ref, of := refOf(q.path("id")), q.get("of")
	switch {
	case of == "message":
		return d.rawMessage(ctx, ref, q)
	case of != "input" && of != "output":
		return nil, badRequest("There is no payload %q of a run: use input, output or message.", of)
	case q.get("step") == "":
		run, err := d.client.Get(ctx, ref)
		if of == "input" {
			return run.Input, err
		}
		return run.Output, err
	}
	attempts, err := d.client.Steps(ctx, ref, kagzi.StepFilter{Steps: []string{q.values.Get("step")}})
	if err != nil {
		return nil, err
	}
	for _, a := range attempts {
		if a.Step != q.values.Get("step") || strconv.Itoa(a.Attempt) != q.get("attempt") {
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
func (d *dashboard) rawMessage(ctx context.Context, ref kagzi.Ref, q query) ([]byte, error) {
	for m, err := range d.eachMessage(ctx, ref, kagzi.MessageFilter{Signal: q.values.Get("signal")}) {
		if err != nil || string(m.ID) == q.values.Get("message") {
			return m.Payload, err
		}
	}
	return nil, nil
}

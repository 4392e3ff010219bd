package web

import (
	"bytes"
	"fmt"
	"net/http"
	"time"
)

// event writes an event of text/event-stream.
func event(events *bytes.Buffer, name string, data []byte) {
	fmt.Fprintf(events, "event: %s\n", name)
	empty := len(data) == 0
	for len(data) > 0 {
		line := data
		// a carriage return ends a line, too, and what follows would be taken for a field
		if end := bytes.IndexAny(data, "\r\n"); end >= 0 {
			line, data = data[:end], data[end+1:]
		} else {
			data = nil
		}
		events.WriteString("data: ")
		events.Write(line)
		events.WriteString("\n")
	}
	if empty {
		events.WriteString("data:\n")
	}
	events.WriteString("\n")
}

// An eventWriter writes events, each with a deadline, and a sign of life when there has been none for long.
type eventWriter struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	wrote time.Time
}

func newEventWriter(w http.ResponseWriter) *eventWriter {
	return &eventWriter{w: w, rc: http.NewResponseController(w)}
}

// close gives the connection back to its next request, without a deadline.
func (o *eventWriter) close() { _ = o.rc.SetWriteDeadline(time.Time{}) }

func (o *eventWriter) write(events []byte) error {
	if len(events) == 0 {
		if time.Since(o.wrote) < quietFor {
			return nil
		}
		events = []byte(":\n\n")
	}
	o.wrote = time.Now()
	_ = o.rc.SetWriteDeadline(o.wrote.Add(writeTimeout)) // not every ResponseWriter has deadlines
	if _, err := o.w.Write(events); err != nil {
		return err
	}
	return o.rc.Flush()
}

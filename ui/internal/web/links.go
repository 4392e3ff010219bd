package web

import (
	"fmt"
	"net/url"
	"strings"
)

// Links makes addresses of the dashboard. It is the path at which a browser finds the dashboard, with a slash at its
// end.
type Links string

// To returns an address of the dashboard: {{link "/schedules/" .Name "/pause"}}. The first argument is a path that may
// have a query, the following ones are alternately a segment, which is escaped, and a path again. {{link "/runs?"
// "status" "FAILED" "kind" .Kind}} is one with a query, of which empty values are left out.
func (l Links) To(path string, rest ...any) string {
	out := strings.TrimSuffix(string(l), "/") + path
	if strings.HasSuffix(path, "?") {
		values := url.Values{}
		for i := 0; i+1 < len(rest); i += 2 {
			if value := fmt.Sprint(rest[i+1]); value != "" {
				values.Add(fmt.Sprint(rest[i]), value)
			}
		}
		return strings.TrimSuffix(out+values.Encode(), "?")
	}
	for i, part := range rest {
		if text := fmt.Sprint(part); i%2 == 0 {
			out += url.PathEscape(text)
		} else {
			out += text
		}
	}
	return out
}

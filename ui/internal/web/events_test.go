package web

import (
	"bytes"
	"strings"
	"testing"
)

func TestACarriageReturnMakesNoEvent(t *testing.T) {
	var events bytes.Buffer
	event(&events, "region", []byte("a\rb\r\nc\n\r\revent: gone\rdata: x\r\r"))
	for line := range strings.FieldsFuncSeq(events.String(), func(r rune) bool { return r == '\r' || r == '\n' }) {
		if line != "event: region" && !strings.HasPrefix(line, "data: ") {
			t.Errorf("the stream has the line %q", line)
		}
	}
	if strings.Contains(strings.TrimSuffix(events.String(), "\n\n"), "\n\n") {
		t.Errorf("it is more than one event: %q", events.String())
	}
}

package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// The picture is well-formed, has a bar only where a worker executed a step, and shows each row of the table.
func TestDraw(t *testing.T) {
	t.Parallel()
	began := time.Now()
	s := &show{victim: "worker-1", began: began, killed: began.Add(time.Second), finished: began.Add(2 * time.Second)}
	picture := string(draw(s, []execution{{worker: "worker-2", at: began.Add(1500 * time.Millisecond)}},
		[]row{{"steps <recorded>", "7", "a & b"}}))
	var text []string
	bars := 0
	for d := xml.NewDecoder(strings.NewReader(picture)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, picture)
		}
		switch token := token.(type) {
		case xml.CharData:
			text = append(text, string(token))
		case xml.StartElement:
			for _, a := range token.Attr {
				if token.Name.Local == "rect" && a.Name.Local == "fill" && a.Value == laneColors[1] {
					bars++
				}
			}
		}
	}
	if all := strings.Join(text, "\n"); !strings.Contains(all, "steps <recorded>") || !strings.Contains(all, "a & b") {
		t.Errorf("the picture lacks the row; its text is %q", all)
	}
	if bars != 1 {
		t.Errorf("worker-2 has %d bars, want 1", bars)
	}
}

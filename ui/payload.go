package ui

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// A payload is an input, a result, or what a message or an event carries, as the template "payload" shows it. Only
// payloads makes one, so that HidePayloads holds everywhere.
type payload struct {
	Empty      bool
	Hidden     bool // by Config.HidePayloads
	Unreadable bool // it is no JSON: the Sealer could not open it, or the Codec writes something else
	Large      bool // it is not shown because of its size
	Size       int
	Root       *node  // nil unless it is JSON
	Cut        bool   // Root lacks a part of it
	Raw        string // where all of it is; empty if nowhere
}

// A node is a value of JSON, folded if it has children.
type node struct {
	Name     string // of the member, or the index
	Sort     string // "object", "array", "string", "number" or "word"
	Text     string
	Children []*node
	More     int // how many children were left out
}

const (
	mostNodes = 1000
	mostDepth = 40
	mostText  = 4 << 10
	// mostTexts bounds the texts of a payload together, and mostName and mostDigits single ones.
	mostTexts  = 64 << 10
	mostName   = 200
	mostDigits = 100
)

// Any reports whether there is one.
func (p payload) Any() bool { return !p.Empty }

// without returns the payload without its values: it is shown elsewhere.
func (p payload) without() payload {
	p.Root = nil
	return p
}

// payloads shows payloads, unless the service hides them.
type payloads struct {
	hide bool
}

// hidden reports whether pages show only sizes.
func (p payloads) hidden() bool { return p.hide }

// show makes the view of data. raw is the path behind Config.Path of a page that has all of it, or empty.
func (p payloads) show(data json.RawMessage, raw string) payload {
	v := payload{Size: len(data), Raw: raw}
	switch {
	case len(data) == 0:
		v.Empty, v.Raw = true, ""
	case p.hide:
		v.Hidden, v.Raw = true, ""
	case !json.Valid(data):
		v.Unreadable = true
	default:
		r := nodeReader{dec: json.NewDecoder(bytes.NewReader(data))}
		r.dec.UseNumber()
		v.Root = r.value("", 0)
		v.Cut = r.cut
	}
	return v
}

// sizeOnly makes the view of a payload that is too large for the page, or was not kept.
func (p payloads) sizeOnly(size int, raw string) payload {
	v := payload{Empty: size == 0, Size: size, Large: true, Raw: raw}
	if p.hide {
		v.Hidden = true
	}
	if v.Hidden || v.Empty {
		v.Raw = ""
	}
	return v
}

// A nodeReader reads valid JSON, and keeps the order of members.
type nodeReader struct {
	dec   *json.Decoder
	nodes int
	text  int // bytes of names and texts
	cut   bool
}

// short returns a text, or the beginning of a long one.
func (r *nodeReader) short(s string, most int) string {
	most = min(most, max(mostTexts-r.text, 0))
	if len(s) > most {
		for most > 0 && !utf8.RuneStart(s[most]) {
			most--
		}
		s, r.cut = s[:most]+"…", true
	}
	r.text += len(s)
	return s
}

func (r *nodeReader) value(name string, depth int) *node {
	t, err := r.dec.Token()
	if err != nil {
		return nil // the JSON is valid
	}
	r.nodes++
	n := &node{Name: name}
	switch t := t.(type) {
	case json.Delim:
		n.Sort = map[json.Delim]string{'{': "object", '[': "array"}[t]
		r.children(n, depth+1)
	case string:
		n.Sort, n.Text = "string", r.short(t, mostText)
	case json.Number:
		n.Sort, n.Text = "number", r.short(t.String(), mostDigits)
	case nil:
		n.Sort, n.Text = "word", "null"
	default:
		n.Sort, n.Text = "word", fmt.Sprint(t)
	}
	return n
}

// children reads the members of an object or an array to its end.
func (r *nodeReader) children(n *node, depth int) {
	for i := 0; r.dec.More(); i++ {
		name := fmt.Sprint(i)
		if n.Sort == "object" {
			t, err := r.dec.Token()
			if err != nil {
				return
			}
			name = r.short(fmt.Sprint(t), mostName)
		}
		if r.nodes >= mostNodes || r.text >= mostTexts || depth > mostDepth {
			var skipped json.RawMessage
			if r.dec.Decode(&skipped) != nil {
				return
			}
			n.More++
			r.cut = true
			continue
		}
		n.Children = append(n.Children, r.value(name, depth))
	}
	_, _ = r.dec.Token() // the closing bracket
}

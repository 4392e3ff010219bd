package waits_test

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/kagzi/kagzi/waits"
)

var soon = time.Date(2026, 10, 1, 10, 0, 0, 0, time.UTC)

// A list reads as docs/waiting.md has it, and survives its JSON, in which all is data.
func TestList(t *testing.T) {
	for text, c := range map[string]struct {
		list waits.List
		raw  string
	}{
		"":        {nil, `null`},
		"retry":   {waits.List{{Kind: waits.Retry}}, `[{"kind":"retry"}]`},
		"5 more":  {waits.List{{Kind: waits.More, Count: 5}}, `[{"kind":"more","count":5}]`},
		"more":    {waits.List{{Kind: waits.More}}, `[{"kind":"more"}]`},
		"child a": {waits.List{{Kind: waits.Child, Name: "a"}}, `[{"kind":"child","name":"a"}]`},
		"child a and 2 more": {
			waits.List{{Kind: waits.Child, Name: "a", Count: 3}},
			`[{"kind":"child","name":"a","count":3}]`,
		},
		"timer reminder; signal approved": {
			waits.List{{Kind: waits.Timer, Name: "reminder", Until: soon}, {Kind: waits.Signal, Name: "approved"}},
			`[{"kind":"timer","name":"reminder","until":"2026-10-01T10:00:00Z"},{"kind":"signal","name":"approved"}]`,
		},
		"signal approved; 1 message that does not decode": {
			waits.List{{Kind: waits.Signal, Name: "approved"}, {Kind: waits.Undecoded, Count: 1}},
			`[{"kind":"signal","name":"approved"},{"kind":"undecoded","count":1}]`,
		},
		"2 messages that do not decode": {
			waits.List{{Kind: waits.Undecoded, Count: 2}},
			`[{"kind":"undecoded","count":2}]`,
		},
		"compensation car; its start is refused": {
			waits.List{{Kind: waits.Compensation, Name: "car", Refused: "start"}},
			`[{"kind":"compensation","name":"car","refused":"start"}]`,
		},
		"its end is refused": {
			waits.List{{Kind: waits.Compensation, Refused: "end"}},
			`[{"kind":"compensation","refused":"end"}]`,
		},
		"key a (2 of 2 running), behind order-42": {
			waits.List{{Kind: waits.Key, Name: "a", Count: 2, Limit: 2, Behind: "order-42"}},
			`[{"kind":"key","name":"a","count":2,"limit":2,"behind":"order-42"}]`,
		},
		"rate of queue shop": {
			waits.List{{Kind: waits.QueueRate, Name: "shop"}},
			`[{"kind":"rate of queue","name":"shop"}]`,
		},
		"cancel (step charge under way)": {
			waits.List{{Kind: waits.Cancel, Name: "charge"}},
			`[{"kind":"cancel","name":"charge"}]`,
		},
		// of a newer library
		"moon full": {waits.List{{Kind: "moon", Name: "full"}}, `[{"kind":"moon","name":"full"}]`},
	} {
		if got := c.list.String(); got != text {
			t.Errorf("it reads %q, want %q", got, text)
		}
		raw, err := json.Marshal(c.list)
		if err != nil || string(raw) != c.raw {
			t.Errorf("%q is %s, %v; want %s", text, raw, err, c.raw)
		}
		var again waits.List
		if err := json.Unmarshal(raw, &again); err != nil || !reflect.DeepEqual(again, c.list) {
			t.Errorf("%s is read as %+v, %v", raw, again, err)
		}
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]waits.Wait{
		"signal": {Kind: waits.Signal}, "signal a/b c": {Kind: waits.Signal, Name: "a/b c"},
		"previous run": {Kind: waits.PreviousRun}, "": {},
	} {
		if got := waits.Parse(text); got != want {
			t.Errorf("%q is %+v, want %+v", text, got, want)
		}
	}
}

package web

import (
	"fmt"
	"testing"
)

func TestOnceForgetsOldForms(t *testing.T) {
	var o once
	made := 0
	send := func(token string) {
		if _, err := o.do(t.Context(), token, func() (Answer, error) { made++; return Answer{}, nil }); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 * mostSent {
		send(fmt.Sprint(i))
		send(fmt.Sprint(i))
	}
	if made != 3*mostSent || len(o.sent) > mostSent || len(o.order) > mostSent {
		t.Errorf("%d changes, and %d and %d forms are kept", made, len(o.sent), len(o.order))
	}
}

package notify

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
)

func newIDs(n int) []uuid.UUID {
	ids := make([]uuid.UUID, n)
	for i := range ids {
		ids[i] = uuid.New()
	}
	return ids
}

func TestRunPayload(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		namespace string
		ids, want int
	}{
		{"acme", 0, 0},
		{"acme", 1, 1},
		{"acme", 200, 1},
		{"acme", 201, 2},
		{"acme", 450, 3},
		{"with:colon", 3, 1},
		{"", 3, 1},
		{strings.Repeat("n", 599), 200, 1},
		{strings.Repeat("n", 600), 200, 2},
		{strings.Repeat("n", maxPayload-idLen), 2, 2},
	} {
		ids := newIDs(tc.ids)
		payloads := RunPayload(tc.namespace, ids)
		if len(payloads) != tc.want {
			t.Errorf("%d runs of a namespace of %d bytes: %d payloads, want %d",
				tc.ids, len(tc.namespace), len(payloads), tc.want)
		}
		var got []uuid.UUID
		for _, payload := range payloads {
			if len(payload) > 7999 {
				t.Errorf("payload of %d bytes", len(payload))
			}
			namespace, some := parseRuns(payload)
			if namespace != tc.namespace || len(some) > 200 {
				t.Errorf("parsed namespace %.20q and %d runs, want %.20q", namespace, len(some), tc.namespace)
			}
			got = append(got, some...)
		}
		if !slices.Equal(got, ids) {
			t.Errorf("%d runs of %.20q do not survive", tc.ids, tc.namespace)
		}
	}
}

func FuzzParseRuns(f *testing.F) {
	f.Add("")
	f.Add(":")
	f.Add("acme")
	f.Add("acme:")
	f.Add("acme:,")
	f.Add("acme:" + uuid.NewString() + ",")
	f.Add("acme:" + uuid.NewString() + ",nonsense")
	f.Add("a:b:" + uuid.NewString())
	f.Fuzz(func(t *testing.T, payload string) {
		namespace, ids := parseRuns(payload)
		if ids != nil && !strings.HasPrefix(payload, namespace+":") {
			t.Errorf("namespace %q of %q", namespace, payload)
		}
		if ids == nil && namespace != "" || ids != nil && len(ids) == 0 {
			t.Errorf("%q: %q, %v", payload, namespace, ids)
		}
	})
}

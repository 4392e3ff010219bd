package driver

import (
	"context"
	"testing"
	"time"

	"github.com/kagzi/kagzi/chaos/internal/evidence"
)

// A server that answers no sample is noticed, also if it has answered before.
func TestSilence(t *testing.T) {
	t.Parallel()
	for name, samples := range map[string][]evidence.Sample{"never": nil, "no more": {{At: evidence.Now()}}} {
		if s := (&sampler{samples: samples}); !s.awaitSilence(t.Context(), 50*time.Millisecond) {
			t.Errorf("%s: not noticed", name)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	s := &sampler{samples: []evidence.Sample{{At: evidence.Now() + time.Hour}}}
	time.AfterFunc(100*time.Millisecond, cancel)
	if s.awaitSilence(ctx, 50*time.Millisecond) {
		t.Error("a server that answers is given up")
	}
}

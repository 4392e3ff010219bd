package kagzi

import (
	"slices"
	"time"
)

// wantEvents compares a run's events, without their times.
func (k *kit) wantEvents(ref Ref, want ...Event) {
	k.t.Helper()
	got, err := k.c.Events(k.ctx, ref)
	if err != nil {
		k.t.Fatal(err)
	}
	for i := range got {
		if i > 0 && got[i].At.Before(got[i-1].At) || got[i].At.IsZero() {
			k.t.Errorf("events are out of order: %+v", got)
		}
		got[i].At = time.Time{}
	}
	if !slices.Equal(got, want) {
		k.t.Errorf("events %+v, want %+v", got, want)
	}
}

package operations_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

// A quarantined run says so, in JSON, too, until it is resumed. A run that merely failed does not.
func TestInfoOfAQuarantinedRun(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, int]("wf", kit.NoRetry)
	stop := kit.Serve(k, wf, func(kagzi.Context, int) (int, error) { return 0, errors.New("no") })
	failed := kit.Begin(k, wf, 1)
	kit.FailureOf(k, failed, kagzi.StatusFailed)
	bad := kit.Begin(k, kagzi.Define[string, int]("wf"), "not a number")
	if re := kit.FailureOf(k, bad, kagzi.StatusFailed); re.Kind != kind.BadInput {
		t.Fatalf("the run failed with %v", re)
	}
	if k.InfoOf(failed).Quarantined {
		t.Error("a run that failed is quarantined")
	}
	info := k.InfoOf(bad)
	if text, err := json.Marshal(info); !info.Quarantined || err != nil ||
		!strings.Contains(string(text), `"quarantined":true`) {
		t.Errorf("the quarantined run is %s, %v", text, err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	k.Resume(bad)
	if info := k.InfoOf(bad); info.Quarantined || info.Status != kagzi.StatusPending {
		t.Errorf("after the Resume it is %+v", info)
	}
}

package health_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/kagzi/kagzi/health"
)

func TestStatusesFromBestToWorst(t *testing.T) {
	t.Parallel()
	statuses := []health.Status{health.Healthy, health.Degraded, health.Unhealthy}
	for i, s := range statuses {
		for j, other := range statuses {
			if got := s.Worse(other); got != (i > j) {
				t.Errorf("%s.Worse(%s) is %t", s, other, got)
			}
		}
	}
}

// A check that was not made is no complaint.
func TestCheckThatIsMissing(t *testing.T) {
	t.Parallel()
	made := health.Check{Name: "pool", Status: health.Degraded, Detail: "All in use."}
	r := health.Report{Checks: []health.Check{made}}
	if got := r.Check("pool"); got != made {
		t.Errorf("pool %+v", got)
	}
	if got, want := r.Check("queues"), (health.Check{Name: "queues", Status: health.Healthy}); got != want {
		t.Errorf("queues %+v", got)
	}
}

func TestJSON(t *testing.T) {
	t.Parallel()
	at := time.Date(2024, 2, 29, 12, 0, 0, 0, time.UTC)
	full := health.Report{
		Status: health.Degraded, Namespace: "shop", At: at,
		Checks:  []health.Check{{Name: "pool", Status: health.Healthy, Detail: "x"}},
		Workers: health.Workers{Live: 1, Draining: 2, Silent: 3, Active: 4, Most: 5, OldestHeartbeat: at},
		Queues: []health.Queue{
			{
				Queue: "q", Workflow: "w", Due: 6, More: true, Since: at, Versions: []int{1, 2}, Workers: 7,
				Stranded: []int{2},
			},
		},
		Quarantined: []string{"id"},
	}
	const want = `{"status":"degraded","namespace":"shop","at":"2024-02-29T12:00:00Z",` +
		`"checks":[{"name":"pool","status":"healthy","detail":"x"}],` +
		`"workers":{"live":1,"draining":2,"silent":3,"active":4,"most":5,"oldest_heartbeat":"2024-02-29T12:00:00Z"},` +
		`"queues":[{"queue":"q","workflow":"w","due":6,"more":true,"since":"2024-02-29T12:00:00Z",` +
		`"versions":[1,2],"workers":7,"stranded":[2]}],` +
		`"quarantined":["id"]}`
	data, err := json.Marshal(full)
	if err != nil || string(data) != want {
		t.Errorf("%v\n%s, want\n%s", err, data, want)
	}
	var back health.Report
	if err := json.Unmarshal(data, &back); err != nil || fmt.Sprint(back) != fmt.Sprint(full) {
		t.Errorf("%+v came back, %v", back, err)
	}
	data, err = json.Marshal(health.Report{Status: health.Unhealthy, Checks: []health.Check{}})
	if want := `{"status":"unhealthy","namespace":"","checks":[]}`; err != nil || string(data) != want {
		t.Errorf("%v\n%s, want\n%s", err, data, want)
	}
}

package admin_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/health"
)

// Without a worker, work that was due an hour ago makes the namespace unhealthy.
func ExampleClient_Health() {
	ctx, pool, client, _ := setup()
	defer teardown()

	ship := kagzi.Define[int, string]("ship")
	_, _ = kagzi.Start(ctx, client, ship, 1)
	_, _ = pool.Exec(ctx, "UPDATE kagzi.workflow_runs SET available_at = now() - interval '1 hour'")

	report, err := admin.New(client).Health(ctx)
	fmt.Println(report.Status, err)
	for _, c := range report.Checks {
		if c.Status != health.Healthy {
			finding, _, _ := strings.Cut(c.Detail, ": ") // behind it: the advice
			fmt.Println(c.Name, c.Status, finding)
		}
	}
	for _, q := range report.Queues {
		fmt.Println(q.Queue, q.Workflow, q.Due, q.Workers)
	}
	// Output:
	// unhealthy <nil>
	// workers unhealthy No worker is live, and work has been due for 60 minutes
	// queues degraded No live worker takes 1 run of workflow "ship" in queue "default" for 60 minutes
	// default ship 1 0
}

// Two probes, as Kubernetes wants them: in an outage the process is not ready, and lives.
func ExampleClient_Readiness() {
	ctx, database, _, _ := setup()
	defer teardown()
	pool, _ := pgxpool.NewWithConfig(ctx, database.Config())
	client, _ := kagzi.NewClient(pool, kagzi.ClientConfig{})

	mux := http.NewServeMux()
	mux.Handle("/livez", admin.New(client).Liveness())
	mux.Handle("/readyz", admin.New(client).Readiness())
	probe := func(path string) {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil))
		fmt.Println(path, w.Code)
	}
	probe("/livez")
	probe("/readyz")

	pool.Close() // no database any more
	mux.Handle("/readyz/now", admin.New(client).Readiness())
	probe("/livez")
	probe("/readyz/now") // the other handler's answer is good for a second
	// Output:
	// /livez 200
	// /readyz 200
	// /livez 200
	// /readyz/now 503
}

package kagzi_test

import (
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/kagzi/kagzi"
)

// These handlers start a run and show it, and answer an error with its HTTP status. From 500 on the error goes to the
// log and not to the caller: its text names runs, workflows and tables.
func ExampleHTTPStatus() {
	ctx, _, client, _ := setup()
	defer teardown()

	fail := func(w http.ResponseWriter, err error) {
		status := kagzi.HTTPStatus(err)
		if status >= http.StatusInternalServerError {
			log.Print(err)
		}
		http.Error(w, http.StatusText(status), status)
	}

	order := kagzi.Define[string, string]("order")
	handler := http.NewServeMux()
	handler.HandleFunc("PUT /orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		_, err := kagzi.Start(r.Context(), client, order, r.URL.Query().Get("item"), kagzi.ID(r.PathValue("id")))
		if err != nil {
			fail(w, err)
		}
	})
	handler.HandleFunc("GET /orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		info, err := client.Get(r.Context(), kagzi.ID(r.PathValue("id")))
		if err != nil {
			fail(w, err)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"workflow": info.Workflow, "status": info.Status})
	})
	request := func(method, path string) {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, method, path, nil))
		fmt.Println(strings.TrimSpace(fmt.Sprint(method, " ", path, " ", w.Code, " ", w.Body)))
	}
	request("GET", "/orders/42")
	request("PUT", "/orders/42?item=book")
	request("PUT", "/orders/42?item=book") // once more, as after a lost answer
	request("PUT", "/orders/42?item=lamp")
	request("GET", "/orders/42")
	// Output:
	// GET /orders/42 404 Not Found
	// PUT /orders/42?item=book 200
	// PUT /orders/42?item=book 200
	// PUT /orders/42?item=lamp 409 Conflict
	// GET /orders/42 200 {"status":"PENDING","workflow":"order"}
}

package ui_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/ui"
)

// setup returns a client of a database of its own, and the function that gives it back.
func setup() (*kagzi.Client, func()) {
	clients, teardown := setupNamespaces("")
	return clients[0], teardown
}

// setupNamespaces returns clients of namespaces of one database.
func setupNamespaces(names ...string) (clients []*kagzi.Client, teardown func()) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	db, done, err := dbtest.Example(ctx)
	if err != nil {
		panic(err)
	}
	for _, name := range names {
		client, err := kagzi.NewClient(db.Pool, kagzi.ClientConfig{Namespace: name, Logger: quiet})
		if err != nil {
			panic(err)
		}
		clients = append(clients, client)
	}
	return clients, func() {
		cancel()
		if err := done(); err != nil {
			fmt.Println("teardown:", err)
		}
	}
}

// A user is what the service knows of who has signed in.
type user struct {
	Email    string
	Operator bool
	Queues   []string // that belong to the user's team
}

type userKey struct{}

// signedIn stands for the service's own authentication: it finds out who sends a request, and hands that on.
func signedIn(u user, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, u)))
	})
}

// userOf returns who sends a request.
func userOf(r *http.Request) user {
	u, _ := r.Context().Value(userKey{}).(user)
	return u
}

var (
	quiet = slog.New(slog.DiscardHandler)
	title = regexp.MustCompile(`<title>(.*)</title>`)
	says  = regexp.MustCompile(`(?s)<h1>[^<]*</h1>\s*<p>(.*?)</p>`)
)

// get shows the status and the title of a page.
func get(h http.Handler, path string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	fmt.Println("GET", path, w.Code, title.FindStringSubmatch(w.Body.String())[1:])
}

// post sends a form, and shows the status with what the error page says.
func post(h http.Handler, who, path, form string) {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(form))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin") // as browsers do
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if found := says.FindStringSubmatch(w.Body.String()); found != nil {
		fmt.Println(who, w.Code, found[1])
		return
	}
	fmt.Println(who, w.Code)
}

// order is a run that waits for a worker.
func order(c *kagzi.Client, id kagzi.ID, queue string) string {
	run, err := kagzi.Start(context.Background(), c, kagzi.Define[string, string]("checkout"), "2 apples", id,
		kagzi.Queue(queue))
	if err != nil {
		panic(err)
	}
	return string(run.ID())
}

// One line in a service. Every visitor may read, and none may change anything.
func ExampleHandler() {
	client, teardown := setup()
	defer teardown()

	mux := http.NewServeMux()
	mux.Handle("/kagzi/", ui.Handler(client, ui.Config{}))

	get(mux, "/kagzi/")
	get(mux, "/kagzi/runs?status=failed")
	get(mux, "/kagzi/runs/order-42")
	// Output:
	// GET /kagzi/ 200 [Overview · default · Kagzi]
	// GET /kagzi/runs?status=failed 200 [Runs · default · Kagzi]
	// GET /kagzi/runs/order-42 404 [Not found · default · Kagzi]
}

// Path is what a browser asks for. Something in front may remove all of it: here a proxy removes /internal, and
// StripPrefix the rest.
func ExampleConfig_path() {
	client, teardown := setup()
	defer teardown()

	mux := http.NewServeMux()
	mux.Handle("/ops/jobs/", ui.Handler(client, ui.Config{Path: "/ops/jobs/"}))

	dashboard := ui.Handler(client, ui.Config{Path: "/internal/kagzi/"})
	mux.Handle("/kagzi/", http.StripPrefix("/kagzi", dashboard))
	proxy := http.StripPrefix("/internal", mux)

	get(mux, "/ops/jobs/schedules")
	get(proxy, "/internal/kagzi/schedules")
	// Output:
	// GET /ops/jobs/schedules 200 [Schedules · default · Kagzi]
	// GET /internal/kagzi/schedules 200 [Schedules · default · Kagzi]
}

// Operators change everything, and others read. Who made a change, and why, is in the run's log.
func ExampleConfig_authorize() {
	client, teardown := setup()
	defer teardown()
	id := order(client, "order-42", "shop")

	dashboard := ui.Handler(client, ui.Config{
		Logger: quiet,
		Authorize: func(r *http.Request, a ui.Action) (string, error) {
			u := userOf(r)
			if u.Email == "" {
				return "", errors.New("sign in first")
			}
			if a.Changes() && !u.Operator {
				return "", fmt.Errorf("only operators may %s", a)
			}
			return u.Email, nil
		},
	})

	cancel, form := "/kagzi/runs/"+id+"/cancel", "reason=the+customer+called"
	post(dashboard, "anonymous:", "/kagzi/runs/bulk/cancel", form)
	post(signedIn(user{Email: "sam@example.com"}, dashboard), "sam:", "/kagzi/runs/bulk/cancel", form)
	post(signedIn(user{Email: "mira@example.com", Operator: true}, dashboard), "mira:", cancel, form)

	log, err := admin.New(client).Runs.Log(context.Background(), kagzi.ID("order-42"))
	if err != nil {
		fmt.Println(err)
	}
	for _, e := range log {
		fmt.Println(e.Event, "by", e.Actor+":", e.Reason)
	}
	// Output:
	// anonymous: 403 Sign in first
	// sam: 403 Only operators may cancel run
	// mira: 303
	// CANCELLED by mira@example.com: the customer called
}

// Visitors who have signed in read, and none changes anything. A Config without Authorize does not even ask who it is.
func ExampleConfig_readOnly() {
	client, teardown := setup()
	defer teardown()

	dashboard := ui.Handler(client, ui.Config{
		Authorize: func(r *http.Request, a ui.Action) (string, error) {
			if a.Changes() {
				return "", errors.New("this dashboard only reads")
			}
			return userOf(r).Email, nil
		},
	})

	post(signedIn(user{Email: "mira@example.com"}, dashboard), "mira:", "/kagzi/runs/bulk/resume", "all=1")
	// Output:
	// mira: 403 This dashboard only reads
}

// A team changes the runs of its queues. Buttons and forms are shown to all visitors, and only a form that is sent is
// looked up: Authorize is asked for each button of each page, so it must not ask the database there.
func ExampleConfig_queues() {
	client, teardown := setup()
	defer teardown()
	shop, office := order(client, "order-42", "shop"), order(client, "order-43", "office")

	dashboard := ui.Handler(client, ui.Config{
		Logger: quiet,
		Authorize: func(r *http.Request, a ui.Action) (string, error) {
			u := userOf(r)
			if u.Operator || r.Method != http.MethodPost {
				return u.Email, nil
			}
			if a.Object != ui.OnRun || a.ID == "" {
				return "", errors.New("only operators may change more than one run")
			}
			run, err := client.Get(r.Context(), kagzi.RunID(a.ID))
			if err != nil {
				return "", err
			}
			if !slices.Contains(u.Queues, run.Queue) {
				return "", fmt.Errorf("queue %s belongs to another team", run.Queue)
			}
			return u.Email, nil
		},
	})

	sam := signedIn(user{Email: "sam@example.com", Queues: []string{"shop"}}, dashboard)
	post(sam, "shop:", "/kagzi/runs/"+shop+"/cancel", "reason=wrong+address")
	post(sam, "office:", "/kagzi/runs/"+office+"/cancel", "reason=wrong+address")
	post(sam, "many:", "/kagzi/runs/bulk/cancel", "all=1")
	// Output:
	// shop: 303
	// office: 403 Queue office belongs to another team
	// many: 403 Only operators may change more than one run
}

// Those who may see payloads have another path than those who may not.
func ExampleConfig_hidePayloads() {
	client, teardown := setup()
	defer teardown()
	id := order(client, "order-42", "shop")

	mux := http.NewServeMux()
	mux.Handle("/kagzi/", ui.Handler(client, ui.Config{HidePayloads: true}))
	mux.Handle("/kagzi-with-data/", ui.Handler(client, ui.Config{Path: "/kagzi-with-data/"}))

	for _, path := range []string{"/kagzi/", "/kagzi-with-data/"} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path+"runs/"+id, nil))
		fmt.Println(path, strings.Contains(w.Body.String(), "2 apples"))
	}
	// Output:
	// /kagzi/ false
	// /kagzi-with-data/ true
}

// An Action says what a request wants, for policies and their errors.
func ExampleAction() {
	for _, a := range []ui.Action{
		{Verb: ui.View, Object: ui.OnOverview},
		{Verb: ui.Resume, Object: ui.OnRun, ID: "0198a1b2-c3d4-7000-8000-000000000042"},
		{Verb: ui.Pause, Object: ui.OnSchedule, ID: "nightly-report"},
	} {
		fmt.Println(a.Changes(), a)
	}
	// Output:
	// false view overview
	// true resume run 0198a1b2-c3d4-7000-8000-000000000042
	// true pause schedule nightly-report
}

// The dashboards of two namespaces. A viewer sees those that Authorize allows.
func ExampleNamespaces() {
	clients, teardown := setupNamespaces("shop", "mail")
	defer teardown()
	shop, mail := clients[0], clients[1]
	order(shop, "order-1707", "shop")

	mux := http.NewServeMux()
	mux.Handle("/kagzi/", ui.Namespaces(map[string]*kagzi.Client{"shop": shop, "mail": mail}, ui.Config{}))
	for _, path := range []string{"/kagzi/shop/runs", "/kagzi/mail/runs"} {
		page := httptest.NewRecorder()
		mux.ServeHTTP(page, httptest.NewRequest(http.MethodGet, path, nil))
		fmt.Println(path, page.Code, strings.Contains(page.Body.String(), "order-1707"))
	}
	// Output:
	// /kagzi/shop/runs 200 true
	// /kagzi/mail/runs 200 false
}

// A run that was started within a trace has a link to it.
func ExampleConfig_traces() {
	client, teardown := setup()
	defer teardown()
	mux := http.NewServeMux()
	mux.Handle("/kagzi/", ui.Handler(client, ui.Config{TraceURL: "https://traces.example.com/trace/{trace}"}))

	order := kagzi.Define[string, string]("order")
	_, err := kagzi.Start(context.Background(), client, order, "", kagzi.ID("order-42"), kagzi.Headers{
		"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", // as kagziotel sets it
	})
	page := httptest.NewRecorder()
	mux.ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/kagzi/runs/order-42", nil))
	fmt.Println(regexp.MustCompile(`https://traces[^"]*`).FindString(page.Body.String()), err)
	// Output:
	// https://traces.example.com/trace/4bf92f3577b34da6a3ce929d0e0e4736 <nil>
}

// TestReadme holds that the code of README.md compiles, because all of it stands in this file, too, and that its links
// lead somewhere.
func TestReadme(t *testing.T) {
	words := func(file string) string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	flat := func(code string) string { return strings.Join(strings.Fields(code), " ") }
	readme, here := words("README.md"), flat(words("example_test.go"))
	blocks := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(readme, -1)
	for _, b := range blocks {
		if !strings.Contains(here, flat(b[1])) {
			t.Errorf("no example has this code:\n%s", b[1])
		}
	}
	links := regexp.MustCompile(`\]\(([^)#:\s]*)(?:#([^)]*))?\)`).FindAllStringSubmatch(readme, -1)
	for _, l := range links {
		page := readme
		if info, err := os.Stat(filepath.FromSlash(l[1])); l[1] != "" && err != nil {
			t.Error(err)
			continue
		} else if l[1] != "" && !info.IsDir() {
			page = words(filepath.FromSlash(l[1]))
		}
		heading := strings.ReplaceAll(l[2], "-", " ")
		if l[2] != "" && !strings.Contains(strings.ToLower(page), "\n## "+heading+"\n") {
			t.Errorf("%s has no such heading", l[0])
		}
	}
	if len(blocks) == 0 || len(links) == 0 {
		t.Error("nothing was checked")
	}
}

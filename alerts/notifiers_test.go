package alerts

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi/health"
)

func sample(change ...func(*Alert)) Alert {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	a := Alert{
		ID: "shop/workers/unhealthy", Key: "shop/workers/unhealthy/1/opened", Namespace: "shop", Check: "workers",
		Status: health.Unhealthy, Title: "workers is unhealthy", Detail: "No worker <lives> & works.",
		Since: at.Add(-time.Minute), At: at, URL: "https://ops.example.com",
	}
	for _, c := range change {
		c(&a)
	}
	return a
}

func closed(a *Alert)   { a.Closed = true }
func degraded(a *Alert) { a.Status = health.Degraded }

// A server keeps the requests that it gets.
type server struct {
	*httptest.Server
	requests []string
	status   int
}

func newServer(t *testing.T) *server {
	s := &server{status: http.StatusOK}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		s.requests = append(s.requests, fmt.Sprintf("%s %s %s", r.Method, r.Header.Get("Idempotency-Key"), body))
		w.WriteHeader(s.status)
		fmt.Fprint(w, "what the server says")
	}))
	t.Cleanup(s.Close)
	return s
}

func TestBodiesOfRequests(t *testing.T) {
	t.Parallel()
	const details = `"custom_details":{"id":"shop/workers/unhealthy",`
	for name, test := range map[string]struct {
		to    func(url string) Notifier
		alert Alert
		want  []string
	}{
		"Webhook": {
			func(url string) Notifier { return Webhook{URL: url} }, sample(),
			[]string{
				`POST shop/workers/unhealthy/1/opened {"id":"shop/workers/unhealthy"`, `"status":"unhealthy"`,
				`"closed":false`, `"since":"2026-03-01T11:59:00Z"`,
			},
		},
		"Slack": {
			func(url string) Notifier { return Slack{URL: url} }, sample(),
			[]string{
				`{"text":":rotating_light: workers is unhealthy\n\n`,
				`No worker \u0026lt;lives\u0026gt; \u0026amp; works.`,
			},
		},
		"SlackDegraded": {
			func(url string) Notifier { return Slack{URL: url} }, sample(degraded), []string{`{"text":":warning: `},
		},
		"SlackClosed": {
			func(url string) Notifier { return Slack{URL: url} }, sample(closed),
			[]string{`{"text":":white_check_mark: `},
		},
		"PagerDuty": {
			func(url string) Notifier { return PagerDuty{RoutingKey: "R1", URL: url} }, sample(),
			[]string{
				`"routing_key":"R1","event_action":"trigger","dedup_key":"shop/workers/unhealthy"`,
				`"summary":"shop: workers is unhealthy"`, `"severity":"critical"`, details,
			},
		},
		"PagerDutyDegraded": {
			func(url string) Notifier { return PagerDuty{RoutingKey: "R1", URL: url} }, sample(degraded),
			[]string{`"severity":"warning"`},
		},
		"PagerDutyClosed": {
			func(url string) Notifier { return PagerDuty{RoutingKey: "R1", URL: url} }, sample(closed),
			[]string{
				`{"routing_key":"R1","event_action":"resolve","dedup_key":"shop/workers/unhealthy",` +
					`"client_url":"https://ops.example.com"}`,
			},
		},
		"Only": {
			func(url string) Notifier { return Only(health.Unhealthy, Webhook{URL: url}) }, sample(),
			[]string{`"status":"unhealthy"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			n := test.to(s.URL)
			if err := n.Notify(t.Context(), test.alert); err != nil {
				t.Fatal(err)
			}
			if len(s.requests) != 1 {
				t.Fatalf("%d requests: %q", len(s.requests), s.requests)
			}
			for _, want := range test.want {
				if !strings.Contains(s.requests[0], want) {
					t.Errorf("sent %s\nwithout %s", s.requests[0], want)
				}
			}
			s.status = http.StatusTooManyRequests
			err := n.Notify(t.Context(), test.alert)
			if got := fmt.Sprint(err); !strings.Contains(got, "429") || !strings.Contains(got, "what the server says") {
				t.Errorf("a refusal returned %v", err)
			}
		})
	}
}

func TestOnlyDropsMilderAlerts(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	if err := Only(health.Unhealthy, Webhook{URL: s.URL}).Notify(t.Context(), sample(degraded)); err != nil {
		t.Error(err)
	}
	if err := Only(health.Degraded, Webhook{URL: s.URL}).Notify(t.Context(), sample(degraded)); err != nil {
		t.Error(err)
	}
	if len(s.requests) != 1 {
		t.Errorf("%d requests, want that of the second one", len(s.requests))
	}
}

// A redirect would make a GET of the POST, and lose the alert.
func TestARedirectIsAnError(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	moved := httptest.NewServer(http.RedirectHandler(s.URL, http.StatusFound))
	defer moved.Close()
	if err := (Webhook{URL: moved.URL}).Notify(t.Context(), sample()); err == nil || len(s.requests) > 0 {
		t.Errorf("%v, and %q", err, s.requests)
	}
}

// The URL of a webhook is a secret.
func TestErrorsHideTheURL(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	secret := s.URL + "/services/SECRET"
	s.Close()
	for _, n := range []Notifier{
		Webhook{URL: secret}, Slack{URL: secret}, PagerDuty{RoutingKey: "SECRET", URL: secret},
	} {
		if err := n.Notify(t.Context(), sample()); err == nil || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%T: %v", n, err)
		}
	}
	echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/moved/SECRET" {
			w.Header().Set("Location", "%SECRET")
			w.WriteHeader(http.StatusFound)
			return
		}
		http.Error(w, fmt.Sprint(r.URL, r.Header), http.StatusNotFound)
	}))
	defer echo.Close()
	header := http.Header{"Authorization": {"Bearer SECRET"}}
	for _, n := range []Notifier{
		Webhook{URL: echo.URL + "/services/SECRET"},
		Webhook{URL: echo.URL + "/?key=SECRET", Header: header},
		Slack{URL: echo.URL + "/moved/SECRET"},
	} {
		if err := n.Notify(t.Context(), sample()); err == nil || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%T: %v", n, err)
		}
	}
	err := Webhook{URL: "SECRET"}.validate()
	if err == nil || strings.Contains(err.Error(), "SECRET") {
		t.Errorf("a URL without a scheme: %v", err)
	}
}

func TestLevelsOfLogEntries(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	to := Slog{slog.New(slog.NewTextHandler(&b, nil))}
	for _, a := range []Alert{sample(), sample(degraded), sample(closed)} {
		if err := to.Notify(t.Context(), a); err != nil {
			t.Error(err)
		}
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	for i, want := range []string{"level=ERROR", "level=WARN", "level=INFO"} {
		if len(lines) != 3 || !strings.Contains(lines[i], want) ||
			!strings.Contains(lines[i], `msg="workers is unhealthy" alert=shop/workers/unhealthy`) {
			t.Errorf("line %d of %q, want %s", i, lines, want)
		}
	}
}

// A mailServer takes one message by SMTP.
func mailServer(t *testing.T) (addr string, session chan string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	session = make(chan string, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		var all strings.Builder
		in := bufio.NewReader(conn)
		fmt.Fprint(conn, "220 ready\r\n")
		for inData := false; ; {
			line, err := in.ReadString('\n')
			if err != nil {
				break
			}
			all.WriteString(line)
			switch {
			case inData && line != ".\r\n":
				continue
			case strings.HasPrefix(line, "DATA"):
				fmt.Fprint(conn, "354 go on\r\n")
				inData = true
				continue
			}
			inData = false
			code := 250
			if strings.HasPrefix(line, "QUIT") {
				code = 221
			}
			fmt.Fprintf(conn, "%d ok\r\n", code)
		}
		session <- all.String()
	}()
	return l.Addr().String(), session
}

func TestMailIsAMessage(t *testing.T) {
	t.Parallel()
	addr, session := mailServer(t)
	to := Mail{Addr: addr, From: "Kagzi <kagzi@example.com>", To: []string{"ops@example.com", "Zoë <ann@example.com>"}}
	a := sample(func(a *Alert) { a.Title = "Zürich\r\nBcc: x@example.com" })
	if err := to.Notify(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	all := <-session
	for _, want := range []string{
		"MAIL FROM:<kagzi@example.com>", "RCPT TO:<ops@example.com>", "RCPT TO:<ann@example.com>",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("the session has no %s:\n%s", want, all)
		}
	}
	_, text, _ := strings.Cut(all, "DATA\r\n")
	text, _, _ = strings.Cut(text, "\r\n.\r\n")
	m, err := mail.ReadMessage(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	addressees, err := m.Header.AddressList("To")
	if err != nil || len(addressees) != 2 || addressees[1].Name != "Zoë" {
		t.Errorf("the message is to %v, %v", addressees, err)
	}
	if m.Header.Get("Bcc") != "" || !strings.HasSuffix(m.Header.Get("Message-ID"), "@example.com>") {
		t.Errorf("headers %v", m.Header)
	}
	body, err := io.ReadAll(base64.NewDecoder(base64.StdEncoding, m.Body))
	if err != nil || !strings.Contains(string(body), "No worker <lives> & works.") ||
		!strings.Contains(string(body), "https://ops.example.com") {
		t.Errorf("body %q, %v", body, err)
	}
}

// A server that does not answer holds up no longer than ctx allows.
func TestMailServerThatIsSilent(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := (Mail{Addr: l.Addr().String(), From: "a@example.com", To: []string{"b@example.com"}}).Notify(ctx,
		sample()); err == nil {
		t.Error("a silent server was no error")
	}
}

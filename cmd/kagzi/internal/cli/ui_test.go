package cli_test

import (
	"context"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/cli"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
)

// The dashboard is for those who know the code, and for this machine only.
func TestUI(t *testing.T) {
	k, s := newShell(t)
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	kit.Begin(k, approve, 1, kagzi.ID("order-1"),
		kagzi.Headers{"traceparent": "00-" + trace + "-00f067aa0ba902b7-01"})
	s.run("ui --address 0.0.0.0:0").exits(2).says("other machines may reach", "127.0.0.1")
	s.run("ui --address example.org:80").exits(2).says("other machines may reach")
	s.run("ui --address 8080").exits(2).says("give host and port")
	for _, wrong := range []string{
		"{trace}", "https://traces.example.com", "ftp://example.com/{trace}", "https:///{trace}",
	} {
		s.run("ui --trace-url "+wrong).exits(2).says("{trace}", "traces.example.com")
	}
	ctx, end := context.WithCancel(k.Ctx)
	defer end()
	out := &lockedBuffer{}
	done := make(chan int)
	go func() {
		done <- cli.Run(ctx, []string{
			"ui", "--actor", "ada", "--trace-url", "https://traces.example.com/trace/{trace}",
		}, s.world(strings.NewReader(""), out, io.Discard))
	}()
	address := regexp.MustCompile(`(http://127\.0\.0\.1:\d+)/enter/(\w+)`)
	await.True(t, "the address", func() bool { return address.MatchString(out.String()) })
	found := address.FindStringSubmatch(out.String())
	stranger, known := &http.Client{}, &http.Client{}
	known.Jar, _ = cookiejar.New(nil)
	get := func(c *http.Client, path string) (int, string) {
		t.Helper()
		r, err := c.Get(found[1] + path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, string(body)
	}
	if code, body := get(stranger, "/runs"); code != http.StatusForbidden || strings.Contains(body, "order-1") {
		t.Errorf("without the code: %d %s", code, body)
	}
	if code, _ := get(known, "/enter/x"+found[2]); code != http.StatusForbidden {
		t.Errorf("with a wrong code: %d", code)
	}
	code, body := get(known, "/enter/"+found[2])
	leads := regexp.MustCompile(`url=(/\w{8}/)"`).FindStringSubmatch(body)
	if code != http.StatusOK || leads == nil {
		t.Fatalf("with the code: %d %s", code, body)
	}
	if code, body := get(stranger, leads[1]+"runs"); code != http.StatusForbidden || strings.Contains(body, "order-1") {
		t.Errorf("with the path alone: %d %s", code, body)
	}
	// Browsers send cookies to all ports of a host, and so to servers of other users of the machine.
	at, err := url.Parse(found[1])
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/", "/runs", "/favicon.ico"} {
		if sent := known.Jar.Cookies(at.JoinPath(path)); len(sent) != 0 {
			t.Errorf("%s gets %v", path, sent)
		}
	}
	if code, body := get(known, leads[1]+"runs"); code != http.StatusOK || !strings.Contains(body, "order-1") ||
		!strings.Contains(body, "You are ada") {
		t.Errorf("with the cookie: %d %s", code, body)
	}
	if code, body := get(known, leads[1]+"runs/order-1"); code != http.StatusOK ||
		!strings.Contains(body, "https://traces.example.com/trace/"+trace) {
		t.Errorf("the page of a run within a trace: %d %s", code, body)
	}
	end()
	if code := <-done; code != 0 {
		t.Errorf("kagzi ui exits with %d", code)
	}
}

// Package dashboard serves the dashboard on this machine.
package dashboard

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/ui"
)

// uiConns is how many connections the dashboard has: its looks are shared by all browsers, and some go on beside
// others.
const uiConns = 8

// Command returns kagzi ui.
func Command(p *command.Program) *cobra.Command {
	address, readOnly, hide := "127.0.0.1:0", false, false
	var actor, traces string
	c := &cobra.Command{
		Use:   "ui",
		Short: "Serve the dashboard on this machine",
		Long: `Ui serves the dashboard to browsers on this machine until Ctrl-C, and prints its address. The address
has a code, because other users of this machine can reach it, too: a browser that knows the code may see and change
all that this command's database user may. Changes have --actor as their actor.

To give the dashboard to others, mount it in a service of yours, which knows who they are: see package
github.com/kagzi/kagzi/ui.`,
		Example: `  kagzi ui
  kagzi ui --read-only --address 127.0.0.1:8090
  kagzi ui --trace-url 'https://traces.example.com/trace/{trace}'`,
		Args: command.Exactly(),
	}
	flags := c.Flags()
	flags.StringVar(&address, "address", address, "the `HOST:PORT` to listen on, which must be of this machine only; "+
		"port 0 is a free one")
	flags.StringVar(&actor, "actor", cmp.Or(os.Getenv("KAGZI_ACTOR"), command.User()), "`NAME` for the log of who "+
		"makes the changes; default: KAGZI_ACTOR, or the user's name")
	flags.BoolVar(&readOnly, "read-only", false, "change nothing")
	flags.BoolVar(&hide, "hide-payloads", false, "show no inputs, results and payloads of messages")
	flags.StringVar(&traces, "trace-url", "", "the `URL` of a trace in your tracing system, with {trace} in place of "+
		"its ID: a run that was started within a trace links to it")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := cmp.Or(onlyLoopback(address), withTrace(traces)); err != nil {
			return err
		}
		p.DB.Conns = uiConns
		client, err := p.Client(cmd.Context())
		if err != nil {
			return err
		}
		cfg := ui.Config{Path: "/" + rand.Text()[:8] + "/", HidePayloads: hide, Pool: p.DB.Pool, TraceURL: traces}
		if !readOnly {
			cfg.Authorize = func(*http.Request, ui.Action) (string, error) { return actor, nil }
		}
		listener, err := net.Listen("tcp", address)
		if err != nil {
			return fmt.Errorf("cannot listen: %w", err)
		}
		code := rand.Text()
		fmt.Fprintf(p.World.Out, "The dashboard of namespace %s: http://%s/enter/%s\nCtrl-C ends it.\n",
			p.Namespace(), listener.Addr(), code)
		return serve(cmd.Context(), listener, entered(code, cfg.Path, ui.Handler(client, cfg)))
	}
	return c
}

// onlyLoopback refuses addresses that other machines can reach: all users there would have this user's rights.
func onlyLoopback(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return command.Usagef("--address is %q: give host and port, such as 127.0.0.1:8090", address)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return command.Usagef("--address is %q, which other machines may reach: give 127.0.0.1, [::1] or localhost. "+
			"For others, mount the dashboard in a service of yours", address)
	}
	return nil
}

// withTrace refuses what ui.Handler refuses as its TraceURL.
func withTrace(traces string) error {
	at, err := url.Parse(strings.ReplaceAll(traces, "{trace}", "0"))
	if traces == "" || err == nil && (at.Scheme == "https" || at.Scheme == "http") && at.Host != "" &&
		strings.Contains(traces, "{trace}") {
		return nil
	}
	return command.Usagef("--trace-url is %q: give an address with {trace} in it, such as "+
		"https://traces.example.com/trace/{trace}", traces)
}

// codeCookie is the cookie of browsers that have entered.
const codeCookie = "kagzi-ui"

// entered lets browsers pass that have opened /enter/CODE. Another page that has made its name mean this machine does
// not have the cookie.
//
// Browsers send a cookie to all ports of a host. So the dashboard's path is random, and the cookie is for that path: a
// server of another user of this machine does not get it, as its pages do not know the path, and two dashboards do not
// take each other's cookies away.
func entered(code, path string, next http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /enter/{code}", func(w http.ResponseWriter, r *http.Request) {
		if subtle.ConstantTimeCompare([]byte(r.PathValue("code")), []byte(code)) != 1 {
			http.Error(w, "This code is of another kagzi ui: open the address that the command has printed.",
				http.StatusForbidden)
			return
		}
		http.SetCookie(w, &http.Cookie{
			Name: codeCookie, Value: code, Path: path, HttpOnly: true,
			SameSite: http.SameSiteStrictMode,
		})
		w.Header().Set("Referrer-Policy", "no-referrer")
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		// A redirect would be a part of the request from where the link was clicked, and have no strict cookie. The
		// path has letters and digits only, so it is HTML as it is.
		fmt.Fprintf(w,
			`<!doctype html><meta http-equiv="refresh" content="0; url=%[1]s"><title>Kagzi</title>`+
				`<p><a href="%[1]s">To the dashboard</a></p>`, path)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		cookie, err := r.Cookie(codeCookie)
		if err != nil || subtle.ConstantTimeCompare([]byte(cookie.Value), []byte(code)) != 1 {
			http.Error(w, "Open the address that kagzi ui has printed: it has a code.", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
	return mux
}

// serve serves until ctx ends.
func serve(ctx context.Context, l net.Listener, h http.Handler) error {
	server := &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second,
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err := server.Shutdown(grace)
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close()
	}
	<-ended
	return err
}

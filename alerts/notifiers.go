package alerts

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/kagzi/kagzi/health"
)

// A Slog logs alerts: an Unhealthy one at level Error, a Degraded one at Warn, and a closed one at Info.
type Slog struct {
	Logger *slog.Logger // zero means slog.Default()
}

// Notify logs the alert.
func (s Slog) Notify(ctx context.Context, a Alert) error {
	logger := s.Logger
	if logger == nil {
		logger = slog.Default()
	}
	level := slog.LevelWarn
	switch {
	case a.Closed:
		level = slog.LevelInfo
	case a.Status == health.Unhealthy:
		level = slog.LevelError
	}
	logger.Log(ctx, level, a.Title, "alert", a.ID, "namespace", a.Namespace, "detail", a.Detail, "since", a.Since)
	return nil
}

// A Webhook sends each [Alert] as JSON, in a POST whose header Idempotency-Key is the Alert's Key. It is sent again
// unless the answer has a status below 300. Redirects are not followed.
type Webhook struct {
	URL    string
	Header http.Header  // is added, for example Authorization
	Client *http.Client // zero means http.DefaultClient
}

func (w Webhook) validate() error { return validURL("Webhook", w.URL) }

// Notify sends the alert. Its errors have no part of the URL but the host, and no header.
func (w Webhook) Notify(ctx context.Context, a Alert) error {
	header := w.Header.Clone()
	if header == nil {
		header = http.Header{}
	}
	header.Set("Idempotency-Key", a.Key)
	return post(ctx, w.Client, w.URL, header, a)
}

// A Slack posts alerts to a channel of Slack, or of a service that takes its messages, such as Mattermost.
type Slack struct {
	URL    string       // of an incoming webhook
	Client *http.Client // zero means http.DefaultClient
}

func (s Slack) validate() error { return validURL("Slack", s.URL) }

// Notify posts the alert. Its errors have no part of the URL but the host.
func (s Slack) Notify(ctx context.Context, a Alert) error {
	sign := ":warning:"
	switch {
	case a.Closed:
		sign = ":white_check_mark:"
	case a.Status == health.Unhealthy:
		sign = ":rotating_light:"
	}
	escape := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")
	return post(ctx, s.Client, s.URL, nil, map[string]string{"text": sign + " " + escape.Replace(a.describe())})
}

// A PagerDuty opens and resolves incidents of PagerDuty's Events API, version 2: critical for Unhealthy, and else a
// warning. Alerts of one ID are one incident, also from two processes. So are those of two databases that have the same
// namespace: give each a RoutingKey of its own.
type PagerDuty struct {
	RoutingKey string       // of the service's integration
	URL        string       // zero means that of PagerDuty
	Client     *http.Client // zero means http.DefaultClient
}

const pagerDuty = "https://events.pagerduty.com/v2/enqueue"

func (p PagerDuty) validate() error {
	if p.RoutingKey == "" {
		return errors.New("PagerDuty has no RoutingKey: it is that of an integration with the Events API v2")
	}
	if p.URL == "" {
		return nil
	}
	return validURL("PagerDuty", p.URL)
}

// Notify opens or resolves the incident.
func (p PagerDuty) Notify(ctx context.Context, a Alert) error {
	type payload struct {
		Summary   string `json:"summary"`
		Source    string `json:"source"`
		Severity  string `json:"severity"`
		Timestamp string `json:"timestamp"`
		Component string `json:"component"`
		Details   Alert  `json:"custom_details"`
	}
	event := struct {
		RoutingKey string   `json:"routing_key"`
		Action     string   `json:"event_action"`
		DedupKey   string   `json:"dedup_key"`
		ClientURL  string   `json:"client_url,omitempty"`
		Payload    *payload `json:"payload,omitempty"`
	}{RoutingKey: p.RoutingKey, Action: "resolve", DedupKey: shorten(a.ID), ClientURL: a.URL}
	if !a.Closed {
		severity := "warning"
		if a.Status == health.Unhealthy {
			severity = "critical"
		}
		event.Action = "trigger"
		event.Payload = &payload{
			Summary: a.Namespace + ": " + a.Title, Source: "kagzi/" + a.Namespace, Severity: severity,
			Timestamp: a.At.UTC().Format(time.RFC3339), Component: a.Check, Details: a,
		}
	}
	to := p.URL
	if to == "" {
		to = pagerDuty
	}
	return post(ctx, p.Client, to, nil, event, p.RoutingKey)
}

// validURL refuses a URL to which nothing can be sent. Its error does not have the URL, which may hold a secret.
func validURL(of, s string) error {
	if s == "" {
		return fmt.Errorf("the URL of %s is empty: give one that begins with https:// or http://", of)
	}
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return fmt.Errorf("the URL of %s is not one that begins with https:// or http://", of)
	}
	return nil
}

// post sends v as JSON. Its errors have neither the URL nor what else may be a secret.
func post(ctx context.Context, client *http.Client, to string, header http.Header, v any, secrets ...string) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return errors.New("the URL is not valid")
	}
	for name, values := range header {
		req.Header[name] = values
		secrets = append(secrets, values...)
	}
	secrets = append(secrets, partsOf(req.URL)...)
	req.Header.Set("Content-Type", "application/json")
	if client == nil {
		client = http.DefaultClient
	}
	direct := *client // a redirect would make a GET of the POST
	direct.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	res, err := direct.Do(req)
	if err != nil {
		if failed, ok := errors.AsType[*url.Error](err); ok {
			err = failed.Err
		}
		return fmt.Errorf("POST to %s: %s", req.URL.Host, without(err.Error(), secrets))
	}
	defer res.Body.Close()
	answer, _ := io.ReadAll(io.LimitReader(res.Body, 300)) // for the error only
	if res.StatusCode >= 300 {
		return fmt.Errorf("POST to %s: %s: %s", req.URL.Host, without(res.Status, secrets),
			without(string(answer), secrets))
	}
	return nil
}

// partsOf returns what of a URL may be a secret.
func partsOf(u *url.URL) (parts []string) {
	parts = strings.Split(u.Path, "/")
	for _, values := range u.Query() {
		parts = append(parts, values...)
	}
	if u.User != nil {
		password, _ := u.User.Password()
		parts = append(parts, u.User.Username(), password)
	}
	return parts
}

// without returns the text, or a remark in its place if it has a secret. Parts of a few letters are none.
func without(text string, secrets []string) string {
	const shortestSecret = 6
	for _, s := range secrets {
		if len(s) >= shortestSecret && strings.Contains(text, s) {
			return "(not shown: it has a part of the request)"
		}
	}
	return text
}

package test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/kagzi/kagzi/internal/await"
)

// A tab is a page in the browser, with cookies and storage of its own.
type tab struct {
	t    *testing.T
	ctx  context.Context // of chromedp
	site *site

	mu      sync.Mutex
	wrong   []string
	allowed []string // parts of what the console may say
}

// newTab opens a tab for a site. When the test ends, it fails if the browser has found anything wrong.
func newTab(t *testing.T, s *site) *tab {
	t.Helper()
	tb := &tab{t: t, site: s}
	ctx, cancel := chromedp.NewContext(browser.get(t), chromedp.WithNewBrowserContext(), chromedp.WithListener(tb.hear))
	t.Cleanup(func() {
		cancel()
		tb.check(t)
	})
	tb.ctx = ctx
	tb.do(chromedp.Steps())
	call(tb, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Europe/Berlin"})
	call(tb, emulation.SetLocaleOverride, emulation.SetLocaleOverrideParams{Locale: "en-GB"})
	// it is one of many tabs
	call(tb, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	tb.size(1280, 900)
	tb.dark(false)
	return tb
}

// in returns the tab for a subtest, which fails if the browser finds anything wrong until its end.
func (tb *tab) in(t *testing.T) *tab {
	t.Helper()
	outer := tb.t
	tb.t = t
	t.Cleanup(func() {
		tb.check(t)
		tb.t = outer
	})
	return tb
}

// check fails the test if the browser has found anything wrong since the last check.
func (tb *tab) check(t *testing.T) {
	t.Helper()
	for _, text := range tb.found() {
		t.Error("the browser: " + text)
	}
}

// allow says which of the console's errors the test provokes.
func (tb *tab) allow(parts ...string) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	tb.allowed = append(tb.allowed, parts...)
}

// found returns what the browser has found wrong so far, and forgets it.
func (tb *tab) found() (out []string) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
next:
	for _, text := range tb.wrong {
		for _, part := range tb.allowed {
			if strings.Contains(text, part) {
				continue next
			}
		}
		out = append(out, text)
	}
	tb.wrong = nil
	return out
}

// hear records problems. Violations of the Content-Security-Policy and answers that are errors are entries of the
// log.
func (tb *tab) hear(event any) {
	text := ""
	switch e := event.(type) {
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Source == log.EntrySourceSecurity {
			text = fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL)
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeAssert ||
			e.Type == runtime.ConsoleAPICalledTypeWarning {
			text = "console: "
			for _, arg := range e.Args {
				text += string(arg.Value) + " " + arg.Description
			}
		}
	case *runtime.EventExceptionThrown:
		text = "exception: " + e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			text += " " + e.ExceptionDetails.Exception.Description
		}
	case *network.EventRequestWillBeSent:
		to, err := url.Parse(e.Request.URL)
		if err == nil && (to.Host == tb.site.host || to.Scheme == "data" || to.Scheme == "blob") {
			return
		}
		text = "a request to another host: " + e.Request.URL
	}
	if text == "" {
		return
	}
	tb.mu.Lock()
	defer tb.mu.Unlock()
	tb.wrong = append(tb.wrong, text)
}

// patient is the context of one step.
func (tb *tab) patient() (context.Context, context.CancelFunc) {
	return context.WithTimeout(tb.ctx, await.Patience)
}

// do runs steps that return nothing.
func (tb *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	tb.t.Helper()
	// The first call of a context decides how long its tab lives, so it has no deadline.
	if chromedp.FromContext(tb.ctx).Target == nil {
		if err := chromedp.Do(tb.ctx); err != nil {
			tb.t.Fatal(err)
		}
	}
	ctx, cancel := tb.patient()
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		tb.t.Fatalf("%v; the tab shows %s", err, tb.shows())
	}
}

// call sends a command of the browser's protocol.
func call[P, R any](tb *tab, command cdp.Command[P, R], params P) R {
	tb.t.Helper()
	ctx, cancel := tb.patient()
	defer cancel()
	out, err := chromedp.Call(ctx, command, params)
	if err != nil {
		tb.t.Fatal(err)
	}
	return out
}

// eval returns the value of an expression in the page.
func eval[T any](tb *tab, js string) T {
	tb.t.Helper()
	out, err := tryEval[T](tb, js)
	if err != nil {
		tb.t.Fatalf("%s: %v; the tab shows %s", js, err, tb.shows())
	}
	return out
}

func tryEval[T any](tb *tab, js string) (T, error) {
	ctx, cancel := tb.patient()
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](js, chromedp.EvalAwaitPromise))
}

// shows returns what the tab shows, for the message of a failure.
func (tb *tab) shows() string {
	text, err := tryEval[string](tb,
		`location.href + "\n" + (document.querySelector("#main") ?? document.body).innerText.slice(0, 1500) + `+
			`"\nin the dialog: " + (document.querySelector("#dialog")?.innerText ?? "")`)
	if err != nil {
		return err.Error()
	}
	return text
}

// until waits until an expression is true. While the tab goes from one page to the next it has no value.
func (tb *tab) until(js string) {
	tb.t.Helper()
	var last error
	if !await.BecomesTrue(await.Patience, func() bool {
		var is bool
		is, last = tryEval[bool](tb, "Boolean("+js+")")
		return is
	}) {
		tb.t.Fatalf("waited %v in vain: %s (%v); the tab shows %s", await.Patience, js, last, tb.shows())
	}
}

// open goes to a page, and returns when it shows all that it will show at first.
func (tb *tab) open(path string) {
	tb.t.Helper()
	tb.do(chromedp.Navigate(tb.site.url + path))
	tb.ready()
}

// settled is true when the page's stream has brought what the page came without.
const settled = `document.readyState === "complete" && document.querySelector("h1") && ` +
	`document.querySelector("#live")?.dataset.state !== "wait" && !document.querySelector(".plot.wait")`

func (tb *tab) ready() {
	tb.t.Helper()
	tb.until(settled)
}

// reloaded does something that makes the tab load a page, and returns when it has.
func (tb *tab) reloaded(act func()) {
	tb.t.Helper()
	eval[bool](tb, `(window.before = true)`)
	act()
	tb.until(`!window.before && ` + settled)
}

// text returns the text of the first element.
func (tb *tab) text(selector string) string {
	tb.t.Helper()
	return eval[string](tb, `document.querySelector(`+quote(selector)+`)?.innerText ?? ""`)
}

// says waits until an element's text contains part.
func (tb *tab) says(selector, part string) {
	tb.t.Helper()
	tb.until(`document.querySelector(` + quote(selector) + `)?.innerText.includes(` + quote(part) + `)`)
}

// click clicks the first element as a mouse does.
func (tb *tab) click(selector string) {
	tb.t.Helper()
	tb.until(`document.querySelector(` + quote(selector) + `)?.getClientRects().length`)
	tb.do(chromedp.Click(chromedp.CSS(selector)))
}

// press presses a key, or types a text.
func (tb *tab) press(keys string, opts ...chromedp.KeyOption) {
	tb.t.Helper()
	tb.do(chromedp.KeyEvent(keys, opts...))
}

// fill replaces the value of a field by typing.
func (tb *tab) fill(selector, value string) {
	tb.t.Helper()
	eval[bool](tb, `(() => { const el = document.querySelector(`+quote(selector)+
		`); el.focus(); el.select(); return true })()`)
	if value == "" {
		tb.press("\b")
		return
	}
	tb.press(value)
}

// size is that of the page, in pixels.
func (tb *tab) size(width, height int64) {
	tb.t.Helper()
	call(tb, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: width, Height: height,
		DeviceScaleFactor: 1, Mobile: width < 600,
	})
}

// dark says what the system prefers.
func (tb *tab) dark(is bool) {
	tb.t.Helper()
	scheme := "light"
	if is {
		scheme = "dark"
	}
	// Transitions would be half done when the test looks.
	call(tb, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}})
}

// quote returns a JavaScript literal.
func quote(s string) string {
	out, _ := json.Marshal(s) // a string has no error
	return string(out)
}

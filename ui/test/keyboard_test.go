package test

import (
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/ui"
)

func navigate(url string) chromedp.Action[chromedp.Void] { return chromedp.Navigate(url) }

// focused describes the element with the focus, and whether it can be seen to have it: by its outline, or that of the
// box around it.
const focused = `(() => {
	const el = document.activeElement, seen = (e) => {
		const s = getComputedStyle(e);
		return s.outlineStyle !== "none" && parseFloat(s.outlineWidth) > 0;
	};
	const of = (e) => e.tagName.toLowerCase() + (e.id ? "#" + e.id : "") +
		(e.className && typeof e.className === "string" ? "." + e.className.trim().split(/\s+/).join(".") : "") +
		(e.name ? "[" + e.name + "]" : "");
	const box = el.getBoundingClientRect();
	return (seen(el) || seen(el.parentElement) && el.parentElement.matches(":focus-within") ? "" : "UNSEEN ") +
		(box.width && box.height && box.bottom > 0 && box.top < innerHeight ? "" : "OUTSIDE ") + of(el);
})()`

func TestKeyboard(t *testing.T) {
	k, tb := begin(t, ui.Config{Authorize: everybody})
	run := kit.Begin(k, idle, "x", kagzi.ID("order-42"))
	tb.open("/runs")
	tb.press(kb.Tab)
	if got := eval[string](tb, focused); !strings.HasSuffix(got, "a.skip") || strings.HasPrefix(got, "UNSEEN") {
		t.Errorf("the first Tab leads to %s, not to the link that skips the navigation", got)
	}
	tb.press(kb.Enter)
	tb.until(`document.activeElement.id === "main"`)
	// press sends the character apart from the key
	for _, typ := range []input.DispatchKeyEventType{
		input.DispatchKeyEventTypeKeyDown,
		input.DispatchKeyEventTypeKeyUp,
	} {
		call(tb, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: typ, Key: "/", Code: "Slash", Text: "/"})
	}
	tb.until(`document.activeElement.id === "find"`)
	tb.press("a/b")
	if v := eval[string](tb, `document.activeElement.value`); v != "a/b" {
		t.Errorf("the search has %q", v)
	}
	eval[bool](tb, `(document.querySelector("input[name=run]").focus(), true)`)
	tb.press(" ") // else the buttons are disabled
	tb.says("[data-selected]", "1 selected")
	eval[bool](tb, `(document.querySelector("#find").focus(), true)`)
	seen := tb.tabOrder()
	for _, want := range []string{
		"button.quiet.script", "a", "input#field-id", "input#field-workflow", "input[run]",
		"button.button.small",
	} {
		if !slices.ContainsFunc(seen, func(s string) bool { return strings.HasPrefix(s, want) }) {
			t.Errorf("Tab does not reach %s: %q", want, seen)
		}
	}
	for _, s := range seen {
		if strings.Contains(s, "UNSEEN") || strings.Contains(s, "OUTSIDE") {
			t.Errorf("nobody sees the focus on %s", s)
		}
	}
	eval[bool](tb, `(document.querySelector("tbody th a").focus(), true)`)
	tb.reloaded(func() { tb.press(kb.Enter) })
	if at := eval[string](tb, `location.pathname`); !strings.HasSuffix(at, path("runs", string(run.ID()))) {
		t.Errorf("Enter on the run leads to %s", at)
	}
	tb.dialogByKeys()
}

// tabOrder presses Tab until the focus leaves the page, and returns where it was.
func (tb *tab) tabOrder() (seen []string) {
	tb.t.Helper()
	for range 100 {
		tb.press(kb.Tab)
		at := eval[string](tb, focused)
		if strings.Contains(at, "body") {
			return seen
		}
		seen = append(seen, at)
	}
	tb.t.Errorf("Tab goes round in circles: %q", seen)
	return seen
}

// dialogByKeys opens and closes the dialog that cancels the run.
func (tb *tab) dialogByKeys() {
	tb.t.Helper()
	const link = `document.querySelector("#main a[data-dialog][href$='/cancel']")`
	eval[bool](tb, link+`.focus(), true`)
	tb.press(kb.Enter)
	tb.until(`document.querySelector("#dialog").open && ` +
		`document.querySelector("#dialog").contains(document.activeElement)`)
	eval[bool](tb, `(document.querySelector("#dialog [type=submit], #dialog button.button").focus(), true)`)
	held := true
	call(tb, input.DispatchKeyEvent, input.DispatchKeyEventParams{
		Type: input.DispatchKeyEventTypeKeyDown, Key: "Enter",
		Code: "Enter", Text: "\r", WindowsVirtualKeyCode: 13, AutoRepeat: &held,
	})
	if got := eval[string](tb, focused); strings.HasPrefix(got, "UNSEEN") {
		tb.t.Errorf("nobody sees the focus in the dialog: %s", got)
	}
	if name := eval[string](tb, `document.querySelector("#dialog").getAttribute("aria-label")`); !strings.Contains(name,
		"Cancel") {
		tb.t.Errorf("the dialog's name is %q", name)
	}
	tb.accessible("dialog, light")
	tb.dark(true)
	tb.accessible("dialog, dark")
	tb.dark(false)
	for range 12 { // the focus stays in it
		tb.press(kb.Tab)
		if !eval[bool](tb,
			`document.querySelector("#dialog").contains(document.activeElement) || `+
				`document.activeElement === document.body`) {
			tb.t.Errorf("Tab leaves the dialog for %s", eval[string](tb, focused))
			break
		}
	}
	tb.press(kb.Escape)
	tb.until(`!document.querySelector("#dialog").open`)
	if !eval[bool](tb, `document.activeElement === `+link) {
		tb.t.Errorf("after the dialog the focus is on %s", eval[string](tb, focused))
	}
}

func TestThemes(t *testing.T) {
	_, tb := begin(t, ui.Config{})
	tb.open("/")
	isDark := func() bool {
		return eval[bool](tb,
			`(([r, g, b]) => r + g + b < 200)(getComputedStyle(document.body).backgroundColor.match(/\d+/g)`+
				`.map(Number))`)
	}
	want := func(when string, dark bool) {
		t.Helper()
		if isDark() != dark {
			t.Errorf("%s: dark is %v", when, !dark)
		}
	}
	want("the system is light", false)
	tb.dark(true)
	want("the system is dark", true)
	tb.click("[data-theme-toggle]")
	want("the viewer wants light", false)
	tb.open("/runs")
	want("another page", false)
	tb.click("[data-theme-toggle]")
	tb.dark(false)
	want("the viewer wants dark", true)
	tb.open("/")
	want("the first page again", true)
	tb.click("[data-theme-toggle]")
	want("as the system", false)
	tb.dark(true)
	tb.open("/")
	want("as the system, which is dark", true)
}

// The phone's menu.
func TestMenu(t *testing.T) {
	_, tb := begin(t, ui.Config{})
	tb.size(390, 800)
	tb.open("/")
	if eval[bool](tb, `document.querySelector("#nav").checkVisibility()`) {
		t.Error("the navigation covers a phone")
	}
	tb.click("[data-menu]")
	tb.until(`document.querySelector("[data-menu]").ariaExpanded === "true"`)
	tb.accessible("with the menu")
	tb.reloaded(func() { tb.click("#nav a[href$='/workers']") })
	if h := tb.text("h1"); h != "Workers" {
		t.Errorf("the menu leads to %q", h)
	}
}

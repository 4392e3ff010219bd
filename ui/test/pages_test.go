package test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/kagzi/kagzi/internal/campaign"
)

// Each page with no runs, one run, a shop, and 100,000 runs, one after the other in one tab for each sort of data.
func TestPages(t *testing.T) {
	browser.reserve(t)
	t.Parallel()
	for _, name := range []string{"empty", "one", "shop", "many"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDataset(t, name)
			tb, all := newTab(t, d.site), d.all()
			for i, page := range slices.Sorted(maps.Keys(all)) {
				var looks []string
				switch {
				case campaign.Long && (name != "one" && name != "many" || page == "audit"):
					looks = []string{"light", "dark"}
				case name == "shop":
					looks = []string{[]string{"light", "dark"}[i%2]}
				}
				t.Run(page, func(t *testing.T) { tb.in(t).inspect(all[page], looks) })
			}
		})
	}
}

// inspect opens a page and looks at it wide and narrow, light and dark. In the looks given, "light" or "dark", axe-core
// sees it, too, which takes most of the time: it need not see the same page with other numbers.
func (tb *tab) inspect(path string, looks []string) {
	tb.t.Helper()
	tb.size(1280, 900)
	tb.dark(false)
	tb.open(path)
	if n := eval[int](tb, `document.querySelectorAll("h1").length`); n != 1 {
		tb.t.Errorf("the page has %d h1", n)
	}
	tb.fits()
	if slices.Contains(looks, "light") {
		tb.accessible("light, 1280 px")
	}
	tb.size(360, 740)
	tb.dark(true)
	tb.fits()
	if slices.Contains(looks, "dark") {
		tb.accessible("dark, 360 px")
	}
}

// overflow names the elements that are wider than the page, but for those that scroll within a box of their own.
const overflow = `(() => {
	const width = document.documentElement.clientWidth;
	if (document.documentElement.scrollWidth <= width) return [];
	return [...document.querySelectorAll("body *")].filter((el) => el.getBoundingClientRect().right > width + 1 &&
		!el.closest(".scroll, dialog:not([open])"))
		.slice(0, 5).map((el) => el.outerHTML.slice(0, 150));
})()`

// fits fails the test if the page scrolls sideways.
func (tb *tab) fits() {
	tb.t.Helper()
	if wide := eval[[]string](tb, overflow); len(wide) > 0 {
		tb.t.Errorf("at %d px the page is wider than the screen: %s", eval[int](tb, `innerWidth`),
			fmt.Sprintf("%q", wide))
	}
}

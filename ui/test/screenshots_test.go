package test

import (
	"bytes"
	"flag"
	"fmt"
	"image"
	_ "image/png"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"

	"github.com/kagzi/kagzi/internal/campaign"
)

var (
	screenshots = flag.String("screenshots", "", "the folder for pictures of all pages; without it some are taken, "+
		"and thrown away")
	only    = flag.String("data", "", "the only data of which pictures are taken, such as shop; without it all")
	tallest = flag.Float64("tallest", 2400, "the height in pixels at which pictures are cut off")
)

// TestScreenshots takes a picture of each page with no runs, one run, a shop, and 100,000 runs, light and dark, wide
// and narrow.
func TestScreenshots(t *testing.T) {
	browser.reserve(t)
	t.Parallel()
	dir, sets, most := *screenshots, []string{"empty", "one", "shop", "many"}, math.MaxInt
	if dir == "" {
		dir, sets, most = t.TempDir(), []string{"one"}, 5
	}
	if *only != "" {
		sets = []string{*only}
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, name := range sets {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDataset(t, name)
			tb, all := newTab(t, d.site), d.all()
			call(tb, emulation.SetScrollbarsHidden, emulation.SetScrollbarsHiddenParams{Hidden: true})
			for _, name := range campaign.Some(slices.Sorted(maps.Keys(all)), most) {
				tb.open(all[name])
				// of scrollbars that are hidden
				eval[bool](tb, `(document.documentElement.style.scrollbarGutter = "auto", true)`)
				for _, width := range []int64{1280, 390} {
					tb.size(width, 900)
					for _, dark := range []bool{false, true} {
						tb.dark(dark)
						file := fmt.Sprintf("%s-%s-%d-%s.png", name, d.name, width,
							map[bool]string{false: "light", true: "dark"}[dark])
						tb.picture(filepath.Join(dir, file))
					}
				}
			}
		})
	}
}

// picture writes the whole page to a file.
func (tb *tab) picture(file string) {
	tb.t.Helper()
	box := eval[[]float64](tb, `[innerWidth, document.documentElement.scrollHeight]`)
	beyond := true
	taken := call(tb, page.CaptureScreenshot, page.CaptureScreenshotParams{
		Format: page.CaptureScreenshotFormatPng, CaptureBeyondViewport: &beyond,
		Clip: &page.Viewport{Width: box[0], Height: min(box[1], *tallest), Scale: 1},
	})
	if _, _, err := image.Decode(bytes.NewReader(taken.Data)); err != nil {
		tb.t.Fatal(err)
	}
	if err := os.WriteFile(file, taken.Data, 0o666); err != nil {
		tb.t.Fatal(err)
	}
}

package ui

import (
	"testing"

	"github.com/kagzi/kagzi/internal/kit"
)

// A list of runs has links for the times that are often asked for: of the ends, if all of its runs have ended.
func TestPresetsOfTimes(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{})
	for path, want := range map[string][]string{
		"/runs?queue=shop": {
			"Started within", `href="/kagzi/runs?queue=shop&amp;since=24h">24 h`,
			`href="/kagzi/runs?queue=shop" aria-current="true">any time`,
		},
		"/runs?status=failed&ended-since=1h": {
			"Ended within", `href="/kagzi/runs?ended-since=1h&amp;status=failed" aria-current="true">1 h`,
			`href="/kagzi/runs?status=failed">any time`,
		},
		"/audit?kind=run&since=7d": {`href="/kagzi/audit?kind=run&amp;since=7d" aria-current="true">7 d`},
	} {
		wantAll(t, path, s.mustGet(path), append(want, `Times are in <span data-zone>UTC</span>`)...)
	}
}

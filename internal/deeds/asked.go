package deeds

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
)

// An Asked is one occasion of a deed: what it is about, with which values, and who asks for it.
type Asked struct {
	Client *kagzi.Client
	Ref    kagzi.Ref // of a run
	Name   string    // of a schedule, consumer or worker; of a run, what the reader calls it
	Values Values

	Actor, Reason string
	Explained     bool   // the reason or the actor was given on purpose
	Token         string // of the form; the same one if it is sent again
	Hide          bool   // payloads must not be shown

	Zone   *time.Location               // of times without a zone
	Moment func(t time.Time) string     // writes a time
	Took   func(d time.Duration) string // writes a duration
}

// Called returns what the reader calls the thing that a deed is about.
func (a Asked) Called() string {
	if a.Name == "" && a.Ref != nil {
		return fmt.Sprint(a.Ref)
	}
	return a.Name
}

func (a Asked) admin() *admin.Client { return admin.New(a.Client) }

// why returns who asks and why, as options.
func why[O any](a Asked, more ...O) []O {
	return append([]O{any(kagzi.Reason(a.Reason)).(O), any(kagzi.Actor(a.Actor)).(O)}, more...)
}

func onlyWhy(a Asked) []kagzi.ChangeOption { return why[kagzi.ChangeOption](a) }

// Values are the texts of the form, by the names of fields.
type Values map[string][]string

// Get returns a value without the spaces around it.
func (v Values) Get(name string) string {
	if len(v[name]) == 0 {
		return ""
	}
	return strings.TrimSpace(v[name][0])
}

// Has reports whether one of the fields has a value.
func (v Values) Has(names ...string) bool {
	for _, name := range names {
		if v.Get(name) != "" {
			return true
		}
	}
	return false
}

// all returns the values of a field that are not empty.
func (v Values) all(name string) (texts []string) {
	for _, s := range v[name] {
		if s != "" {
			texts = append(texts, s)
		}
	}
	return texts
}

// The readers of values return what Check has found to be right, or nothing.

func (v Values) number(name string) int {
	n, _ := strconv.Atoi(v.Get(name))
	return n
}

func (v Values) rate(prefix string) admin.Rate {
	r, _ := parseRate(v.Get(prefix + "rate"))
	if r.Starts > 0 {
		r.Burst = v.number(prefix + "burst")
	}
	return r
}

func (a Asked) past(name string, now time.Time) (t time.Time) {
	if a.Values.Has(name) {
		t, _ = ParseTime(a.Values.Get(name), now, -1, a.Zone)
	}
	return t
}

// pairs returns tags, each of which is a line or a value.
func (v Values) pairs(name string) kagzi.Metadata {
	out := kagzi.Metadata{}
	for _, text := range v[name] {
		for line := range strings.Lines(text) {
			if k, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), "="); ok {
				out[k] = value
			}
		}
	}
	return out
}

// json returns a payload; null if none is filled in.
func (v Values) json(name string) json.RawMessage {
	return json.RawMessage(cmp.Or(v.Get(name), "null"))
}

// RefOf returns the run that people call s: a UUID is a run ID.
func RefOf(s string) kagzi.Ref {
	if IsRunID(s) {
		return kagzi.RunID(s)
	}
	return kagzi.ID(s)
}

// IsRunID reports whether a text is a run ID, not an ID of the application.
func IsRunID(s string) bool {
	_, err := uuid.Parse(s)
	return err == nil && len(s) == len(uuid.Nil.String())
}

// cut returns the first n characters of a text.
func cut(n int, s string) string {
	if letters := []rune(s); len(letters) > n {
		return string(letters[:n]) + "…"
	}
	return s
}

// plural counts things.
func plural(n int, one string, several ...string) string {
	switch {
	case n == 1:
		return "1 " + one
	case len(several) > 0:
		return fmt.Sprintf("%d %s", n, several[0])
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// by ends a clause with who made a change.
func by(actor string) string { return strings.TrimSuffix(" by "+actor, " by ") }

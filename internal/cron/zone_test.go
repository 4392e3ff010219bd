package cron

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestLoadLocation(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"": "UTC", "UTC": "UTC", "Europe/London": "Europe/London",
		"Asia/Kathmandu": "Asia/Kathmandu",
	} {
		if loc, err := LoadLocation(name); err != nil || loc.String() != want {
			t.Errorf("%q: got %v %v", name, loc, err)
		}
	}
	for name, want := range map[string]string{
		"Local":                    `time zone "Local" differs from machine to machine`,
		"localtime":                `time zone "localtime" differs from machine to machine`,
		"Mars/Olympus":             `time zone "Mars/Olympus": want a name such as "Europe/Berlin"`,
		"+02:00":                   `time zone "+02:00": want a name`,
		"../../etc/passwd":         `time zone "../../etc/passwd": want a name`,
		"a\x00b":                   `time zone "a\x00b": want a name`,
		"europe/berlin":            `or "UTC"; names are case-sensitive`,
		strings.Repeat("x", 10000): `…: want a name`,
		strings.Repeat("ä", 200):   `äääää"…: want a name`,
	} {
		loc, err := LoadLocation(name)
		if err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 300 ||
			strings.Contains(err.Error(), "unknown time zone") {
			t.Errorf("%q: got %v %v, want %s", name, loc, err, want)
		}
	}
}

// A container without zone data knows no zone: the error must not blame the name.
func TestLoadLocationWithoutData(t *testing.T) {
	t.Parallel()
	none := func(name string) (*time.Location, error) { return nil, errors.New("unknown time zone " + name) }
	for _, name := range []string{"Europe/London", "America/New_York"} {
		if _, err := loadLocation(name, none); err == nil || !strings.Contains(err.Error(), "no time zone data") ||
			!strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if loc, err := loadLocation("", none); err != nil || loc != time.UTC {
		t.Errorf("UTC needs none: got %v %v", loc, err)
	}
}

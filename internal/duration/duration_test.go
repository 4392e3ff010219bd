package duration_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi/internal/duration"
)

func ExampleParse() {
	for _, s := range []string{"90s", "1h30m", "1.5h", "1 day 2h", "2 weeks"} {
		d, err := duration.Parse(s)
		fmt.Println(d, err)
	}
	_, err := duration.Parse("30")
	fmt.Println(err)
	// Output:
	// 1m30s <nil>
	// 1h30m0s <nil>
	// 1h30m0s <nil>
	// 26h0m0s <nil>
	// 336h0m0s <nil>
	// kagzi: duration "30" has a number without a unit: write "30s", "5m" or "2 days"
}

func ExampleFormat() {
	fmt.Println(duration.Format(30 * time.Second))
	fmt.Println(duration.Format(90 * time.Minute))
	fmt.Println(duration.Format(26 * time.Hour))
	// Output:
	// 30s
	// 1h30m
	// 1 day 2h
}

func TestParse(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for s, want := range map[string]time.Duration{
		"0":                                  0,
		"0s":                                 0,
		"30s":                                30 * time.Second,
		"+5s":                                5 * time.Second,
		"  30  s ":                           30 * time.Second,
		"30 sec":                             30 * time.Second,
		"1 second":                           time.Second,
		"2 seconds":                          2 * time.Second,
		"5m":                                 5 * time.Minute,
		"5 min":                              5 * time.Minute,
		"1 minute":                           time.Minute,
		"90 minutes":                         90 * time.Minute,
		"1h30m":                              90 * time.Minute,
		"1 h 30 m":                           90 * time.Minute,
		"1 hr":                               time.Hour,
		"2 hours":                            2 * time.Hour,
		"1.3000000000000000000000001s":       1300 * time.Millisecond, // more digits than an int64 holds
		"1.5h":                               90 * time.Minute,
		".5h":                                30 * time.Minute,
		"1.h":                                time.Hour,
		"1d":                                 day,
		"1 day":                              day,
		"1day":                               day,
		"3 days":                             3 * day,
		"1 day 2h":                           26 * time.Hour,
		"1 day\t2h":                          26 * time.Hour,
		"0.5 days":                           12 * time.Hour,
		"1w":                                 7 * day,
		"1 week":                             7 * day,
		"2 weeks":                            14 * day,
		"2 weeks 1 day 3 hours":              15*day + 3*time.Hour,
		"250ms":                              250 * time.Millisecond,
		"250 milliseconds":                   250 * time.Millisecond,
		"1.5ms":                              1500 * time.Microsecond,
		"10us":                               10 * time.Microsecond,
		"10µs":                               10 * time.Microsecond, // micro sign
		"10μs":                               10 * time.Microsecond, // Greek mu
		"7ns":                                7,
		"0.9ns":                              0,
		"0.000000001s":                       1,
		"0.0000000000000000000000000001w":    0,
		"000000000000000000000000000000001s": time.Second,
		"9223372036854775807ns":              math.MaxInt64,
		"106751 days 23h47m16.854775807s":    math.MaxInt64,
		"1s 1s":                              2 * time.Second, // as in Go, parts add up
	} {
		if got, err := duration.Parse(s); err != nil || got != want {
			t.Errorf("Parse(%q) = %v, %v; want %v", s, got, err, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{
		"":                           "is empty",
		"  ":                         "is empty",
		"+":                          "is empty",
		"-":                          "is negative",
		"-30s":                       "is negative",
		" -1 day":                    "is negative",
		"30":                         "without a unit",
		"1h 30":                      "without a unit",
		"00":                         "without a unit",
		".":                          "want a number",
		".s":                         "want a number",
		"s":                          "want a number",
		"soon":                       "want a number",
		"1h-30m":                     "want a number",
		"1h +30m":                    "want a number",
		"+ 5s":                       "want a number",
		"1..5h":                      "without a unit",
		"1,5h":                       "unknown unit",
		"1 day, 2h":                  "unknown unit",
		"1 month":                    "unknown unit",
		"1 year":                     "unknown unit",
		"1M":                         "unknown unit",
		"1e3s":                       "unknown unit",
		"1s\x00":                     "unknown unit",
		"1\xff":                      "unknown unit",
		"\u0663s":                    "want a number", // an Arabic digit
		"9223372036854775808ns":      "too long",
		"106751 days 24h":            "too long",
		"9223372036854775807ns 1ns":  "too long",
		"9223372036854775807ns 0.9w": "too long",
		"9223372036.9s":              "too long",
		"9223372036854775807ns 9223372036.999999999s": "too long", // over 2⁶⁴
		"15251w":                        "too long",
		"18446744073709551617ns":        "too long", // 2⁶⁴ + 1
		strings.Repeat("9", 1e6) + "ns": "too long",
	} {
		d, err := duration.Parse(s)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%.30q) = %v, %v; want an error that says %q", s, d, err, want)
			continue
		}
		if len(err.Error()) > 300 {
			t.Errorf("Parse(%.30q): the error has %d bytes", s, len(err.Error()))
		}
		if s := strings.TrimSpace(s); len(s) > 0 && len(s) < 20 &&
			!strings.Contains(err.Error(), strings.Trim(fmt.Sprintf("%q", s), `"`)) {
			t.Errorf("Parse(%q): the error does not name the text: %v", s, err)
		}
	}
}

func TestFormat(t *testing.T) {
	t.Parallel()
	for want, d := range map[string]time.Duration{
		"0s":                              0,
		"7ns":                             7,
		"1.5µs":                           1500,
		"250ms":                           250 * time.Millisecond,
		"1.5s":                            1500 * time.Millisecond,
		"30s":                             30 * time.Second,
		"1m":                              time.Minute,
		"1m30s":                           90 * time.Second,
		"1m5ms":                           time.Minute + 5*time.Millisecond,
		"1h":                              time.Hour,
		"1h30m":                           90 * time.Minute,
		"1h5s":                            time.Hour + 5*time.Second,
		"23h59m59s":                       24*time.Hour - time.Second,
		"1 day":                           24 * time.Hour,
		"1 day 2h":                        26 * time.Hour,
		"1 day 1ns":                       24*time.Hour + 1,
		"14 days":                         14 * 24 * time.Hour,
		"2 days 1h1m1s":                   49*time.Hour + time.Minute + time.Second,
		"106751 days 23h47m16.854775807s": math.MaxInt64,
		"-1s":                             -time.Second,
	} {
		if got := duration.Format(d); got != want {
			t.Errorf("Format(%d) = %q; want %q", d, got, want)
		}
	}
	_ = duration.Format(math.MinInt64) // no panic
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	for range 20_000 {
		checkDuration(t, time.Duration(rand.Int64()>>rand.IntN(63))) // all magnitudes
		checkDuration(t, time.Duration(rand.IntN(1e6))*time.Second)
	}
}

func checkDuration(t *testing.T, d time.Duration) {
	t.Helper()
	text := duration.Format(d)
	if got, err := duration.Parse(text); err != nil || got != d {
		t.Fatalf("%d → %q → %d, %v", d, text, got, err)
	}
}

func Fuzz(f *testing.F) {
	f.Add("1 day 2h", int64(1))
	f.Add("1.000000001h", int64(math.MaxInt64))
	f.Add("9223372036854775807ns", int64(90*time.Second))
	f.Fuzz(func(t *testing.T, s string, n int64) {
		if n >= 0 {
			checkDuration(t, time.Duration(n))
		}
		d, err := duration.Parse(s)
		if err == nil && d < 0 {
			t.Fatalf("Parse(%q) = %d", s, d)
		}
		if err == nil {
			checkDuration(t, d)
		}
		// Go and Parse must agree on a text that both accept. (Go rounds fractions to float64.)
		want, goErr := time.ParseDuration(s)
		if goErr != nil || want < 0 || strings.HasPrefix(s, "-") {
			return
		}
		if err != nil {
			t.Fatalf("Parse(%q): %v; Go has %v", s, err, want)
		}
		if !strings.Contains(s, ".") && d != want {
			t.Fatalf("Parse(%q) = %v; Go has %v", s, d, want)
		}
	})
}

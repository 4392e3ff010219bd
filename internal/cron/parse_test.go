package cron_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi/internal/cron"
)

func ExampleParse() {
	berlin, err := cron.LoadLocation("Europe/Berlin")
	if err != nil {
		fmt.Println(err)
		return
	}
	s, err := cron.Parse("30 7 * * mon-fri", berlin)
	if err != nil {
		fmt.Println(err)
		return
	}
	next, _ := s.Next(time.Date(2026, 7, 3, 12, 0, 0, 0, time.UTC))
	fmt.Println(next)
	_, err = cron.Parse("30 27 * * *", berlin)
	fmt.Println(err)
	// Output:
	// 2026-07-06 05:30:00 +0000 UTC
	// cron "30 27 * * *": hour "27": want 0-23
}

func TestParseCanonical(t *testing.T) {
	t.Parallel()
	for expr, want := range map[string]string{
		"0 7 * * 1-5":                "0 7 * * 1-5",
		" 0\t7  * *\n1-5 ":           "0 7 * * 1-5",
		"00 07 01 01 00":             "0 7 1 1 0",
		"? ? ? ? ?":                  "* * * * *",
		"*/1 */1 */1 */1 */1":        "* * * * *",
		"0-59 0-23 * 1-12 *":         "* * * * *",
		"0 0 1-31 * 0-6":             "0 0 1-31 * 0-6", // not `*`: then both days would have to match
		"*/15 * * * *":               "*/15 * * * *",
		"0/15 * * * *":               "*/15 * * * *",
		"5/15 9-17/4 * * *":          "5-59/15 9-17/4 * * *",
		"0 */24 * * *":               "0 0 * * *",
		"50/20 23/2 * * *":           "50 23 * * *",
		"0 0 1,15,L * *":             "0 0 1,15,L * *",
		"0 0 l,15w * *":              "0 0 L,15W * *",
		"0 0 * jan,Mar-MAY sun":      "0 0 * 1,3-5 0",
		"0 0 * * 7":                  "0 0 * * 0",
		"0 0 * * 7-2":                "0 0 * * 0-2",
		"0 0 * * 5-7":                "0 0 * * 5-7",
		"0 0 * * 7-7":                "0 0 * * 0",
		"0 0 * * 7/2":                "0 0 * * 0-6/2",
		"0 0 * * sun-sat/3":          "0 0 * * 0-6/3",
		"0 0 * * 5L,friL,7l":         "0 0 * * 5L,5L,0L",
		"0 0 * * 5#2,fri#3,7#1":      "0 0 * * 5#2,5#3,0#1",
		"0 0 */2 * */2":              "0 0 */2 * */2",
		"0 0 0 1 1 *":                "0 0 1 1 *",
		"*/10 0 0 1 1 *":             "*/10 0 0 1 1 *",
		"0 0 0 1 1 * *":              "0 0 1 1 *",
		"0 0 0 1 1 * 2030":           "0 0 0 1 1 * 2030",
		"0 0 0 1 1 ? 2030/2":         "0 0 0 1 1 * 2030-9999/2",
		"0 0 0 1 1 ? */4,2030-2033":  "0 0 0 1 1 * */4,2030-2033",
		"@hourly":                    "0 * * * *",
		" @DAILY ":                   "0 0 * * *",
		"@midnight":                  "0 0 * * *",
		"@Weekly":                    "0 0 * * 0",
		"@monthly":                   "0 0 1 * *",
		"@yearly":                    "0 0 1 1 *",
		"@annually":                  "0 0 1 1 *",
		"@5minutes":                  "*/5 * * * *",
		"@30minutes":                 "*/30 * * * *",
		"0 0 29 2 *":                 "0 0 29 2 *",
		"0 0 31W * *":                "0 0 31W * *",
		"0 0 0 31 12 * 9999":         "0 0 0 31 12 * 9999",
		"0 0 0 1 1 * 1970":           "0 0 0 1 1 * 1970",
		"0 0 30 2 1":                 "0 0 30 2 1", // Mondays in February
		"0 0 0 29 2 * 2019-2027":     "0 0 0 29 2 * 2019-2027",
		"0 0 0 29 2 */7 2019/50,*/4": "0 0 0 29 2 */7 2019-9999/50,*/4",
	} {
		s, err := cron.Parse(expr, nil)
		if err != nil {
			t.Error(err)
			continue
		}
		if s.String() != want {
			t.Errorf("%q: got %q, want %q", expr, s, want)
		}
		if again, err := cron.Parse(s.String(), nil); err != nil || again.String() != want {
			t.Errorf("%q again: got %v %v", s, again, err)
		}
	}
}

// Expressions that only gronx accepts, forms of other programs that we do not support, and typing errors. The errors
// name the field, its text and the valid values.
func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ expr, want string }{
		{"", `cron "": empty`},
		{" \n", `empty`},
		{"* * * *", `4 fields: want 5`},
		{"* * * * * * * *", `8 fields: want 5`},
		{"60 * * * *", `minute "60": want 0-59`},
		{"* 24 * * *", `hour "24": want 0-23`},
		{"* * 0 * *", `day of month "0": want 1-31`},
		{"* * 32 * *", `day of month "32": want 1-31`},
		{"* * * 13 *", `month "13": want 1-12 or JAN-DEC`},
		{"* * * 0 *", `month "0": want 1-12`},
		{"* * * * 8", `day of week "8": want 0-7 or SUN-SAT`},
		{"60 * * * * *", `second "60": want 0-59`},
		{"0 0 0 1 1 * 0", `year "0": want 1970-9999`},
		{"0 0 0 1 1 * 26", `year "26": want 1970-9999`},
		{"0 0 0 1 1 * 12026", `year "12026": want 1970-9999`},
		{"0 0 1 1 * 2030", `day of week "2030": a year needs seven fields`},

		{"70/5 * * * *", `minute "70/5": want 0-59`},
		{"*,99 * * * *", `minute "*,99"`},
		{"30,99 * * * *", `minute "99": want 0-59`},
		{"*/100 * * * *", `minute "*/100": want a step of 1 to 60`},
		{"*/0 * * * *", `minute "*/0": want a step of 1 to 60`},
		{"*/-1 * * * *", `minute "*/-1": want a step`},
		{"*/ * * * *", `minute "*/": want a step`},
		{"*/5/5 * * * *", `minute "*/5/5": want a step`},
		{"/5 * * * *", `minute "/5": want 0-59`},
		{"5-10-15 * * * *", `minute "5-10-15": want 0-59`},
		{"+5 * * * *", `minute "+5": want 0-59`},
		{"-5 * * * *", `minute "-5": want 0-59`},
		{"1.5 * * * *", `minute "1.5": want 0-59`},
		{"5, * * * *", `minute "": want 0-59`},
		{",5 * * * *", `minute "": want 0-59`},
		{"10-5 * * * *", `minute "10-5": the range runs backwards`},
		{"0 22-2 * * *", `hour "22-2": the range runs backwards`},
		{"0 0 * * FRI-MON", `day of week "FRI-MON": the range runs backwards`},
		{"٣ * * * *", `minute "٣": want 0-59`},

		{"MON * * * *", `minute "MON": want 0-59`},
		{"* * DEC DEC *", `day of month "DEC": want 1-31`},
		{"* * * * SUNMON", `day of week "SUNMON": want 0-7`},
		{"* * * * MONDAY", `day of week "MONDAY": want 0-7`},
		{"* * * JANUARY *", `month "JANUARY": want 1-12`},
		{"* * * MON *", `month "MON": want 1-12`},

		{"L * * * *", `minute "L": want 0-59`},
		{"* * LW * *", `day of month "LW": want 1W-31W`},
		{"* * W * *", `day of month "W": want 1W-31W`},
		{"* * 0W * *", `day of month "0W": want 1W-31W`},
		{"* * 32W * *", `day of month "32W": want 1W-31W`},
		{"* * 1-5W * *", `day of month "1-5W": want 1W-31W`},
		{"* * L-3 * *", `day of month "L-3": want 1-31`},
		{"* * 5L * *", `day of month "5L": want 1-31`},
		{"* * L/2 * *", `day of month "L/2": want 1-31`},
		{"* * 5#2 * *", `day of month "5#2": want 1-31`},
		{"* * * * L", `day of week "L": want 0-7`},
		{"* * * * 8L", `day of week "8L": want 0-7`},
		{"* * * * 5W", `day of week "5W": want 0-7`},
		{"* * * * 5#0", `day of week "5#0": want #1-#5`},
		{"* * * * 5#6", `day of week "5#6": want #1-#5`},
		{"* * * * 9#1", `day of week "9#1": want 0-7`},
		{"* * * * 5#", `day of week "5#": want #1-#5`},
		{"* * * * 5#1#2", `day of week "5#1#2": want #1-#5`},
		{"* * * * 1-5#2", `day of week "1-5#2": want 0-7`},
		{"* * *,1 * *", `day of month "*,1": * in a list means every day of month: want it alone`},
		{"* * * * *,1", `day of week "*,1": * in a list`},
		{"* * * * 1,*/2", `day of week "1,*/2": want no * in a list`},
		{"* * 10,*/2 * *", `day of month "10,*/2": want no * in a list`},
		{"* * 10,? * *", `day of month "?": want 1-31`},
		{"H * * * *", `minute "H": want 0-59`},

		{"@reboot", `want one of @hourly`},
		{"@", `want one of @hourly`},
		{"@daily 5", `want one of @hourly`},
		{"@every 90s", `an interval is not a cron expression: set Every: 90*time.Second instead of Cron`},
		{"@every 5m", `set Every: 5*time.Minute instead of Cron`},
		{"@every 36h", `set Every: 36*time.Hour instead of Cron`},
		{"@every", `set Every, a time.Duration, instead of Cron`},
		{"@every 1.5s", `set Every, a time.Duration, instead of Cron`},
		{"0 0 * * fri-mon", `day of week "fri-mon": the range runs backwards: write fri-sat,sun-mon`},
		{"0 0 * * FRI-SUN", `write FRI-SAT,SUN`},
		{"0 0 * * sat-mon", `write sat,sun-mon`},
		{"0 0 * nov-feb *", `write nov-dec,jan-feb`},
		{"0 22-6 * * *", `write 22-23,0-6`},
		{"0 22-6/2 * * *", `list its values`},
		{"0 0 0 * * * 2030-2028", `write 2028-2030`},
		{"every 90s", `2 fields`},
		{"TZ=UTC 0 0 * * *", `the time zone is given beside the expression, not in it: set TimeZone`},
		{"CRON_TZ=UTC 0 0 * * *", `: set TimeZone`},

		{"0 0 30 2 *", `never fires`},
		{"0 0 31 4,6,9,11 *", `never fires`},
		{"0 0 31W 2 *", `never fires`},
		{"0 0 0 29 2 * 2027", `never fires`},
		{"0 0 3W * */7", `never fires`}, // a working day that is a Sunday
		{"0 0 * 2 6#5,5#5 ", ``},
		{"* * * * * 5\x00", `day of week "5\x00": want 0-7`},
		{"* * * * \xff", `day of week "\xff": want 0-7`},
		{strings.Repeat("1", 500) + " * * * *", `…`},
		{"* * * * *" + strings.Repeat(" ", 1000), `1009 bytes are too long`},
	} {
		s, err := cron.Parse(c.expr, time.UTC)
		switch {
		case c.want == "":
			if err != nil {
				t.Error(err)
			}
		case err == nil:
			t.Errorf("%q: got %q, want the error %q", c.expr, s, c.want)
		case !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "cron ") ||
			len(err.Error()) > 300:
			t.Errorf("%q: got %v, want %q", c.expr, err, c.want)
		case errors.Is(err, cron.ErrNeverFires) != (c.want == "never fires"):
			t.Errorf("%q: %v: ErrNeverFires is misplaced", c.expr, err)
		}
	}
}

// An accepted expression has a tick, makes progress, and means the same in its canonical form.
func FuzzParse(f *testing.F) {
	for _, expr := range []string{
		"* * * * *", "30 2 * * *", "*/15 0-3,5/4 * jan mon#2", "0 0 L,15W * 5L", "0 0 0 29 2 * 2024/4", "@daily",
		"0 0 30 2 *", "*,99 * * * *", "0 0 31W 2 *", "7-7 * * * 7-7/2",
	} {
		f.Add(expr)
	}
	r := newRandom(2)
	for range 100 {
		f.Add(fmt.Sprintf("%s %s %s %s %s %s", r.list(0, 59), r.clock(), r.day(), r.month(), r.weekday(), r.year()))
	}
	cairo := zone(f, "Africa/Cairo")
	f.Fuzz(func(t *testing.T, expr string) {
		s, err := cron.Parse(expr, cairo)
		if err != nil {
			return
		}
		again, err := cron.Parse(s.String(), cairo)
		if err != nil || again.String() != s.String() {
			t.Fatalf("%q as %q: %v %v", expr, s, again, err)
		}
		if _, ok := parse(t, expr, nil).Next(time.Unix(-1, 0)); !ok {
			t.Fatalf("%q is accepted and never fires", expr)
		}
		ref := time.Date(2026, 4, 23, 12, 0, 0, 0, time.UTC)
		for range 20 {
			next, ok := s.Next(ref)
			if same, ok2 := again.Next(ref); ok2 != ok || !same.Equal(next) {
				t.Fatalf("%q after %v: %v, but as %q: %v", expr, ref, next, s, same)
			}
			if !ok {
				break
			}
			if !next.After(ref) {
				t.Fatalf("%q after %v: %v", expr, ref, next)
			}
			ref = next
		}
	})
}

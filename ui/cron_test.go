package ui

import "testing"

func TestCronInWords(t *testing.T) {
	for expr, want := range map[string]string{
		"0 7 * * mon-fri":    "07:00 from Monday to Friday",
		"0 7 * * 1-5":        "07:00 from Monday to Friday",
		"0 7 * * sat,sun":    "07:00 on Saturday and Sunday",
		"0 7 * * 7":          "07:00 on Sunday",
		"0 7 * * 5-7":        "07:00 from Friday to Sunday",
		"30 6,12,18 * * *":   "06:30, 12:30 and 18:30 each day",
		"@daily":             "00:00 each day",
		"@weekly":            "00:00 on Sunday",
		"@monthly":           "00:00 on day 1 of the month",
		"@yearly":            "00:00 on 1 January",
		"@hourly":            "each hour",
		"* * * * *":          "each minute",
		"*/5 * * * *":        "each 5 minutes",
		"*/5 9-17 * * 1-5":   "each 5 minutes from 09:00 to 17:59 from Monday to Friday",
		"15 * * * *":         "each hour at 15 minutes past",
		"0 8-18 * * *":       "each hour from 08:00 to 18:00",
		"0 */6 * * *":        "each 6 hours",
		"* * * * * *":        "each second",
		"*/10 * * * * *":     "each 10 seconds",
		"0 0 7 * * *":        "07:00 each day",
		"0 0 7 * * ? *":      "07:00 each day",
		"0 7 1 * mon":        "07:00 on day 1 of the month, and on Monday",
		"0 7 L * *":          "07:00 on the last day of the month",
		"0 7 1,15 jan,jul *": "07:00 on day 1 and 15 of the month in January and July",
		// A spec that has no sentence is shown as it is.
		"*/7 * * * *": "", "0 7 * * mon#2": "", "0 7 15W * *": "", "5,10 7-9 * * *": "", "0 7": "", "": "",
		"@5minutes": "", "0 99 * * *": "", "0 7 * * 8": "",
		"0 0 7 * * * 2030": "", "5 * * * * *": "", "0 5-3 * * *": "",
	} {
		if got := cronWords(expr); got != want {
			t.Errorf("%q is %q, not %q", expr, got, want)
		}
	}
}

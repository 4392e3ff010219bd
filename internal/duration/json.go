package duration

import "time"

// Text is a duration as it is written in JSON, empty if it is zero.
func Text(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return Format(d)
}

// OfText is the inverse of Text.
func OfText(s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	return Parse(s)
}

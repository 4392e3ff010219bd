package duration

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

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

// JSON is a Text in JSON, nil if the duration is zero.
func JSON(d time.Duration) json.RawMessage {
	if d == 0 {
		return nil
	}
	return json.RawMessage(`"` + Format(d) + `"`) // digits and units: nothing to escape
}

// OfJSON is the inverse of JSON; old if there is no duration. It refuses a number by the name of the field, instead of
// taking it for nanoseconds.
func OfJSON(field string, data json.RawMessage, old time.Duration) (time.Duration, error) {
	if len(data) == 0 || string(data) == "null" {
		return old, nil
	}
	var s string
	if err := json.Unmarshal(data, &s); err != nil {
		return 0, fmt.Errorf(`kagzi: %s is %.40s: write it as text with a unit, such as "30s"`, field, data)
	}
	d, err := Parse(s)
	if err != nil {
		return 0, fmt.Errorf("kagzi: %s: %s", field, strings.TrimPrefix(err.Error(), "kagzi: "))
	}
	return d, nil
}

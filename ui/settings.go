package ui

import (
	"cmp"
	"strings"
	"time"
)

// settingNames are what the pages call the settings that an entry has changed. Others are called as they are stored, in
// words.
var settingNames = map[string]string{
	"max_running": "runs at once", "key_max_running": "runs at once of each key", "hold": "keeps slots while waiting",
	"park": "stops runs between steps", "catch_up": "missed ticks that are kept",
}

func settingName(field string) string {
	return cmp.Or(settingNames[field], strings.ReplaceAll(field, "_", " "))
}

// settingText returns a value of a setting as the pages write such values.
func settingText(field, value string) string {
	switch value {
	case "true":
		return "yes"
	case "false":
		return "no"
	}
	switch field {
	case "every", "jitter", "timeout", "catch_up_age":
		if d, err := time.ParseDuration(value); err == nil {
			return duration(d)
		}
	case "overlap":
		return strings.ReplaceAll(value, "_", " ")
	}
	return value
}

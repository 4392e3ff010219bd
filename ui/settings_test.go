package ui

import "testing"

// What an entry of the audit log has changed is shown in the words of the pages, not in those of the tables.
func TestSettingsInWords(t *testing.T) {
	for _, c := range []struct{ field, value, name, text string }{
		{"max_running", "4", "runs at once", "4"},
		{"time_zone", "Europe/Berlin", "time zone", "Europe/Berlin"},
		{"every", "8h0m0s", "every", "8 h"},
		{"every", "soon", "every", "soon"},
		{"workflow", "8h0m0s", "workflow", "8h0m0s"},
		{"overlap", "cancel_previous", "overlap", "cancel previous"},
		{"park", "true", "stops runs between steps", "yes"},
		{"skip_paused", "false", "skip paused", "no"},
	} {
		if name, text := settingName(c.field), settingText(c.field, c.value); name != c.name || text != c.text {
			t.Errorf("%s: %s is shown as %s: %s", c.field, c.value, name, text)
		}
	}
}

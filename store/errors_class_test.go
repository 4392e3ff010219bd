package store

import (
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// What a trigger, a constraint or a type refuses is refused for good, whatever code the application's trigger raises.
func TestClassesOfRefusals(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]Class{
		"22021": ClassRefused, "23514": ClassRefused, "44000": ClassRefused, "54000": ClassRefused,
		"P0001": ClassRefused, "P0004": ClassRefused,
		"45000": ClassRefused, "SHOP1": ClassRefused, "99999": ClassRefused, "27000": ClassRefused,
		"09000": ClassRefused,
		"42P01": ClassOther, "0A000": ClassOther, "25P02": ClassOther, "XX000": ClassOther, "": ClassOther,
		"40001": ClassConflict, "55P03": ClassLocked, "57014": ClassLate, "53300": ClassBusy, "53200": ClassUnable,
		"42501": ClassForbidden, "57P01": ClassAway, "08P01": ClassAway,
	} {
		if got := Classify(&pgconn.PgError{Code: code}); got != want {
			t.Errorf("%s has class %v, want %v", code, got, want)
		}
	}
}

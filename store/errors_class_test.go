package store

import (
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/kagzi/kagzi/internal/pg"
)

// What a trigger, a constraint or a type refuses is refused for good, whatever code the application's trigger raises.
func TestClassesOfRefusals(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]pg.Class{
		"22021": pg.ClassRefused, "23514": pg.ClassRefused, "44000": pg.ClassRefused, "54000": pg.ClassRefused,
		"P0001": pg.ClassRefused, "P0004": pg.ClassRefused,
		"45000": pg.ClassRefused, "SHOP1": pg.ClassRefused, "99999": pg.ClassRefused, "27000": pg.ClassRefused,
		"09000": pg.ClassRefused,
		"42P01": pg.ClassOther, "0A000": pg.ClassOther, "25P02": pg.ClassOther, "XX000": pg.ClassOther,
		"":      pg.ClassOther,
		"40001": pg.ClassConflict, "55P03": pg.ClassLocked, "57014": pg.ClassLate, "53300": pg.ClassBusy,
		"53200": pg.ClassUnable,
		"42501": pg.ClassForbidden, "57P01": pg.ClassAway, "08P01": pg.ClassAway,
	} {
		if got := pg.Classify(&pgconn.PgError{Code: code}); got != want {
			t.Errorf("%s has class %v, want %v", code, got, want)
		}
	}
}

package store

import (
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// An instant is what a timestamptz is scanned into.
type instant struct{ t *time.Time }

// utc scans a timestamptz into t, in UTC: pgx gives it in the process's time zone, and a time that is printed, or becomes a
// part of a name, must be the same everywhere. NULL becomes the zero time.
func utc(t *time.Time) instant { return instant{t} }

// ScanTimestamptz is called by pgx.
func (i instant) ScanTimestamptz(v pgtype.Timestamptz) error {
	if v.InfinityModifier != pgtype.Finite {
		return fmt.Errorf("cannot read %v as a time", v.InfinityModifier)
	}
	*i.t = v.Time.UTC()
	return nil
}

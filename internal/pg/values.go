package pg

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

// IDAt returns the lowest ID that a client can make at t.
func IDAt(t time.Time) (id uuid.UUID) {
	binary.BigEndian.PutUint64(id[:], uint64(max(0, t.UnixMilli()))<<16)
	return id
}

// An instant is a scan target for a timestamptz.
type instant struct{ t *time.Time }

// UTC scans a timestamptz into t, in UTC. pgx returns it in the process's time zone, but a time that is printed, or
// becomes part of a name, must look the same everywhere. NULL becomes the zero time.
func UTC(t *time.Time) instant { return instant{t} }

// ScanTimestamptz is called by pgx.
func (i instant) ScanTimestamptz(v pgtype.Timestamptz) error {
	if v.InfinityModifier != pgtype.Finite {
		return fmt.Errorf("cannot read %v as a time", v.InfinityModifier)
	}
	*i.t = v.Time.UTC()
	return nil
}

// microseconds is a duration that a number of microseconds is scanned into.
type microseconds struct{ d *time.Duration }

func MicrosTo(d *time.Duration) microseconds { return microseconds{d} }

// ScanInt64 is called by pgx.
func (m microseconds) ScanInt64(v pgtype.Int8) error {
	*m.d = time.Duration(v.Int64) * time.Microsecond
	return nil
}

// A uuidTarget is a UUID that a uuid is scanned into.
type uuidTarget uuid.UUID

// UUIDTo scans a uuid into id from its bytes: pgx makes a string of it otherwise, for UUID.Scan to parse. NULL becomes
// the zero UUID.
func UUIDTo(id *uuid.UUID) *uuidTarget { return (*uuidTarget)(id) }

// ScanUUID is called by pgx.
func (id *uuidTarget) ScanUUID(v pgtype.UUID) error {
	*id = v.Bytes
	return nil
}

// Scan is called by pgx if the application reads uuids with a codec of its own.
func (id *uuidTarget) Scan(v any) error {
	*id = uuidTarget{}
	return (*uuid.UUID)(id).Scan(v)
}

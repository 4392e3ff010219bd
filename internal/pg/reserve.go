package pg

import (
	"slices"

	"github.com/jackc/pgx/v5"
)

// reserve makes room for the statements of b in conn's buffer of outgoing messages. pgx gives the buffer up after every
// large flush, and lets it grow by a quarter at a time: that would allocate five times the bytes sent.
func reserve(conn *pgx.Conn, b *pgx.Batch) {
	if conn.IsClosed() { // pgx may still be sending its farewell, from a goroutine of its own
		return
	}
	size := 0
	for _, q := range b.QueuedQueries {
		size += 100
		for _, arg := range q.Arguments {
			size += 8
			switch arg := arg.(type) {
			case string:
				size += len(arg)
			case [][]byte:
				for _, element := range arg {
					size += 4 + len(element)
				}
			}
		}
	}
	conn.PgConn().Frontend().Send(room(size))
}

// room is a message that adds nothing to the buffer but room for so many bytes.
type room int

func (room) Frontend() {}

func (room) Decode([]byte) error { return nil }

// Encode is called by pgx.
func (n room) Encode(buffer []byte) ([]byte, error) { return slices.Grow(buffer, int(n)), nil }

package store

// The last position that was drawn: zero before the first one. A SELECT from the sequence is no substitute. It reads
// without the page's lock, and so may see the value that nextval logs ahead, which is up to 32 higher.
const lastPosition = `coalesce(pg_sequence_last_value('kagzi.event_positions'::regclass), 0)`

// The advisory lock of who publishes: the topic, and the last position that was drawn before, of which 32 bits are
// enough.
const (
	topicLock    = `hashtext('kagzi ' || $1 || ' ' || `
	positionLock = `('x' || lpad(to_hex(drawn.position & 4294967295), 8, '0'))::bit(32)::int`
)

// The position up to which all events are there to read, or will never be: that of the oldest transaction under way
// that has published in the topic, else the last one drawn. It is NULL on a standby, which has no locks.
//
// The last position (drawn) is read before the locks: a transaction that takes one later draws a higher one. The
// statement that reads the events follows, so it sees those of the transactions whose locks are gone. A transaction
// that began between the two reads may have a lock with a position drawn in between. It seems to be almost 2^32 behind,
// and stops no reader: a sixteenth of the numbers is left for that.
const settledEvents = `
WITH drawn AS MATERIALIZED (
	SELECT ` + lastPosition + ` AS position
)
SELECT CASE WHEN NOT pg_is_in_recovery() THEN drawn.position - coalesce(l.behind, 0) END
FROM drawn
CROSS JOIN LATERAL (
	SELECT max((drawn.position - l.objid::bigint) & 4294967295)
		FILTER (WHERE (drawn.position - l.objid::bigint) & 4294967295 < 15::bigint << 28) AS behind
	FROM pg_locks l
	WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.granted
		AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
		AND l.classid::bigint = ` + topicLock + `$2)::bigint & 4294967295
	OFFSET 0
) l`

// Who is publishing: the last position that was drawn, and the advisory locks of those who draw, read in this order:
// see settledEvents.
const publishers = `
WITH drawn AS MATERIALIZED (
	SELECT ` + lastPosition + ` AS position
)
SELECT drawn.position, coalesce(l.classes, '{}'), coalesce(l.objects, '{}')
FROM drawn
CROSS JOIN LATERAL (
	SELECT pg_catalog.array_agg(l.classid::bigint) AS classes, pg_catalog.array_agg(l.objid::bigint) AS objects
	FROM pg_locks l
	WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.granted AND drawn.position >= 0
		AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
	OFFSET 0
) l`

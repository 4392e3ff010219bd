package migrations

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/pressly/goose/v3"
)

//go:embed *.sql
var files embed.FS

// Files returns the migrations of this program, in goose's format with one annotation of our own.
func Files() fs.FS { return files }

// The errors that Check returns wrap one of these and name both versions.
var (
	// ErrMissing reports that the database has no Kagzi tables.
	ErrMissing = errors.New("kagzi: schema missing: call kagzi.Migrate, or connect to the database that has it")
	// ErrOlder reports that the database lacks migrations that this program relies on.
	ErrOlder = errors.New("kagzi: schema older than this program: call kagzi.Migrate")
	// ErrNewer reports that a newer program has migrated the database, to a schema that this program cannot work with.
	ErrNewer = errors.New("kagzi: schema newer than this program can work with: upgrade this program's Kagzi")
	// ErrEncoding reports that the database cannot store every text: the results and errors of runs would be refused.
	ErrEncoding = errors.New("kagzi: the encoding of the database is not UTF8: create another, as with CREATE " +
		"DATABASE … TEMPLATE template0 ENCODING 'UTF8', and connect to that")
)

const versionTable = "kagzi.schema_migrations"

// A Querier sends one query; pools, connections and transactions do.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Version returns the newest version that this program knows.
func Version() int64 {
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		panic(err) // the pattern is a constant
	}
	version, err := goose.NumericComponent(names[len(names)-1])
	if err != nil {
		panic(err) // the names are embedded, and tests check them
	}
	return version
}

// Describe returns a sentence about a version that [Check] returned without an error: why this program works with it.
func Describe(version int64) string {
	if known := Version(); version > known {
		return fmt.Sprintf("Version %d, with which this program works too (it knows version %d)", version, known)
	}
	return fmt.Sprintf("Version %d, as this program needs", version)
}

// OldestProgram returns the oldest program that works with the schema of this one.
func OldestProgram() int64 {
	ms, err := parse(files)
	if err != nil {
		panic(err) // the files are embedded, and tests check them
	}
	return ms[len(ms)-1].oldest
}

// A migration is the content of one file.
type migration struct {
	version int64
	oldest  int64  // the oldest version of a program that works with the schema after this migration
	up      string // the statements of the file, with their comments
	// the file says NO TRANSACTION: each statement is a transaction of its own, as CREATE INDEX CONCURRENTLY is
	outsideTx bool
}

// contracts reports whether the migration breaks programs that work with the schema before it. ms are all migrations.
func (m migration) contracts(ms []migration) bool {
	return m.version > 1 && m.oldest > ms[m.version-2].oldest
}

var (
	oldestProgram = regexp.MustCompile(`(?m)^-- \+kagzi OldestProgram (\d+)$`)
	upSection     = regexp.MustCompile(`(?ms)^-- \+goose Up\n(.*?)(?:^-- \+goose Down$|\z)`)
	noTransaction = regexp.MustCompile(`(?m)^-- \+goose NO TRANSACTION$`)
	annotation    = regexp.MustCompile(`(?m)^-- \+goose .*\n`)
)

// parse returns the migrations in files, the first one first. Their numbers are 1, 2, 3 and so on.
func parse(files fs.FS) ([]migration, error) {
	names, err := fs.Glob(files, "*.sql") // in the order of their names, which begin with the number in five digits
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, errors.New("there are no migrations")
	}
	ms := make([]migration, 0, len(names))
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		m, err := parseFile(name, string(text))
		if err != nil {
			return nil, fmt.Errorf("migration %s: %w", name, err)
		}
		if m.version != int64(len(ms)+1) {
			return nil, fmt.Errorf("migration %s: it follows version %d: number it %d", name, len(ms), len(ms)+1)
		}
		ms = append(ms, m)
		switch before := ms[max(0, len(ms)-2)].oldest; {
		case m.oldest < before || m.oldest > m.version:
			return nil, fmt.Errorf("migration %s: OldestProgram is %d: give between %d and %d", name, m.oldest,
				before, m.version)
		case m.contracts(ms) && m.outsideTx:
			return nil, fmt.Errorf("migration %s: older programs do not work with its schema, so it must run in a "+
				"transaction: remove NO TRANSACTION, or split it", name)
		}
	}
	return ms, nil
}

func parseFile(name, text string) (m migration, err error) {
	if m.version, err = goose.NumericComponent(name); err != nil {
		return m, err
	}
	oldest, up := oldestProgram.FindStringSubmatch(text), upSection.FindStringSubmatch(text)
	if oldest == nil || up == nil {
		return m, errors.New(`it has no line "-- +kagzi OldestProgram n", or no "-- +goose Up"`)
	}
	if m.oldest, err = strconv.ParseInt(oldest[1], 10, 64); err != nil {
		return m, err
	}
	m.up = strings.TrimSpace(annotation.ReplaceAllString(up[1], ""))
	m.outsideTx = noTransaction.MatchString(text)
	return m, nil
}

func newest(ms []migration) int64 { return ms[len(ms)-1].version }

const currentVersion = `
SELECT coalesce(max(version_id), 0), coalesce(max(oldest_program), 0), current_setting('server_encoding')
	FROM kagzi.schema_migrations WHERE is_applied`

// Check compares the schema in the database with the one that this program needs. It returns the schema's version. The
// error is nil if the program works with it: the versions are the same, or the schema is newer and still works with
// programs this old. Otherwise it is ErrMissing, ErrOlder, ErrNewer or ErrEncoding: this also in a database without the
// schema, whose version is 0. Check sends one query, which fails if the schema is missing, and then asks for the
// encoding. If q is a transaction, it is aborted then, and the error is ErrMissing.
func Check(ctx context.Context, q Querier) (version int64, err error) {
	return check(ctx, q, Version())
}

func check(ctx context.Context, q Querier, want int64) (found int64, err error) {
	var oldest int64
	encoding := utf8
	err = q.QueryRow(ctx, currentVersion).Scan(&found, &oldest, &encoding)
	if c := code(err); c == "42P01" || c == "3F000" { // no such table, no such schema
		found, oldest, err = 0, 0, nil
		if q.QueryRow(ctx, serverEncoding).Scan(&encoding) != nil { // an aborted transaction tells nothing
			encoding = utf8
		}
	}
	if err != nil {
		return 0, fmt.Errorf("read the schema's version: %w", err)
	}
	if err := checkEncoding(encoding); err != nil {
		return found, err
	}
	return found, compareVersions(found, oldest, want)
}

// utf8 is the encoding that a database needs. In any other the server refuses texts of the application, or takes bytes
// for characters.
const utf8 = "UTF8"

func checkEncoding(encoding string) error {
	if encoding != utf8 {
		return fmt.Errorf("%w (it is %s)", ErrEncoding, encoding)
	}
	return nil
}

// compareVersions returns nil if a program of version want works with a schema of version found, whose oldest program
// is oldest; otherwise ErrMissing, ErrOlder or ErrNewer.
func compareVersions(found, oldest, want int64) error {
	switch {
	case found == 0:
		return fmt.Errorf("%w (this program needs version %d)", ErrMissing, want)
	case found < want:
		return fmt.Errorf("%w (it has version %d, this program needs version %d)", ErrOlder, found, want)
	case oldest > want:
		return fmt.Errorf("%w (it has version %d and works with programs from version %d on; this program knows "+
			"version %d)", ErrNewer, found, oldest, want)
	}
	return nil
}

// code returns the SQLSTATE of err; "" if err is not an answer of the server.
func code(err error) string {
	var pe *pgconn.PgError
	if errors.As(err, &pe) {
		return pe.Code
	}
	return ""
}

package migrations_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A migration may be applied to tables that Citus has distributed. Citus accepts a constraint only in a statement of
// its own. That every key contains namespace_id is checked in the catalog, by TestEveryTableBearsDistribution of
// package store.
func TestMigrationsBearDistribution(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("INVALID: migrations %v, error %v", files, err)
	}
	for _, file := range files {
		sql, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, wrong := range notAlone(string(sql)) {
			t.Errorf("%s: ADD CONSTRAINT stands with other subcommands, which Citus refuses: write an ALTER TABLE of "+
				"its own for it:\n%s", file, wrong)
		}
	}
}

func TestConstraintsStandAlone(t *testing.T) {
	t.Parallel()
	for sql, wrong := range map[string]bool{
		`ALTER TABLE kagzi.a ADD CONSTRAINT c CHECK (x IN ('a',
			'b')) NOT VALID;`: false,
		`ALTER TABLE kagzi.a ADD COLUMN x int,
			ADD COLUMN y int DEFAULT 1; ALTER TABLE kagzi.a DROP CONSTRAINT c;`: false,
		"-- one, ADD CONSTRAINT\nALTER TABLE kagzi.a ADD " +
			"COLUMN x int;": false,
		`CREATE TABLE kagzi.a (x int,
			CONSTRAINT c CHECK (x > 0));`: false,
		"ALTER TABLE kagzi.a\n    ADD COLUMN x int,\n    DROP CONSTRAINT c,\n    ADD CONSTRAINT c CHECK (x > 0) " +
			"NOT VALID;": true,
		`alter table kagzi.a add constraint c check (x > 0), add column y int;`: true,
		`ALTER TABLE kagzi.a ADD COLUMN x int, ADD CHECK (x > 0);`:              true,
	} {
		if got := notAlone(sql); (len(got) > 0) != wrong {
			t.Errorf("%q: found %q, want some: %t", sql, got, wrong)
		}
	}
}

var (
	comment       = regexp.MustCompile(`--[^\n]*`)
	alterTable    = regexp.MustCompile(`(?i)^\s*ALTER\s+TABLE\b`)
	addConstraint = regexp.MustCompile(`(?i)\bADD\s+(CONSTRAINT|CHECK|UNIQUE|PRIMARY\s+KEY|FOREIGN\s+KEY|EXCLUDE)\b`)
)

// notAlone returns the statements that add a constraint and do something else.
func notAlone(sql string) (found []string) {
	for statement := range strings.SplitSeq(comment.ReplaceAllString(sql, ""), ";") {
		if alterTable.MatchString(statement) && addConstraint.MatchString(statement) && subcommands(statement) > 1 {
			found = append(found, strings.TrimSpace(statement))
		}
	}
	return found
}

// subcommands counts the parts that are separated by commas outside of parentheses.
func subcommands(statement string) (n int) {
	depth := 0
	for _, c := range statement {
		switch {
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == ',' && depth == 0:
			n++
		}
	}
	return n + 1
}

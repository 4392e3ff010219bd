package migrations

import "io/fs"

// LockID is the ID of the advisory lock, for tests that hold it.
const LockID = lockID

// CheckVersion is Check for a program that knows this version, for tests.
var CheckVersion = check

// SQLOf is SQL for other migrations, for tests.
func SQLOf(files fs.FS, from, to int64) (string, error) {
	ms, err := parse(files)
	if err != nil {
		return "", err
	}
	return sqlOf(ms, from, to)
}

// Parse reads migrations as Up does, for tests.
func Parse(files fs.FS) error {
	_, err := parse(files)
	return err
}

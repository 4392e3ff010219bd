package migrations

// LockID is the advisory lock's, for tests that hold it.
const LockID = lockID

// CheckVersion is Check for a program that knows this version, for tests.
var CheckVersion = checkVersion

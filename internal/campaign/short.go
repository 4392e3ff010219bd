//go:build !long

package campaign

// Long says that the tests were built with the tag long.
const Long = false

// Package store holds the SQL statements of Kagzi's work; package store/inspect has those that only read. It knows
// nothing of Go functions, and carries no compatibility promise: applications use package kagzi.
//
// Each method is one transaction, and one round trip where that is possible. Times are the database's: callers send
// durations, and only those times that a method of this package returned.
//
// The files doc_*.go tell the protocols that its statements keep, each with a drawing.
package store

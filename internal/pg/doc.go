// Package pg sends the store's statements: with settings of its own, in transactions of its own or of the caller, and
// again where that may help. It knows the classes of Postgres's errors, and how values are read. It has no statement
// about a table of Kagzi's.
package pg

// Package core is what the packages kagzi, admin and topic share of a client: the store, hints and payloads of one
// namespace, the configurations that options set, and the errors that callers see. None of it is for users, so a method
// of package kagzi that has one of its types is for these packages only.
package core

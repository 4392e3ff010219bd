// Package namespaces executes the runs of many namespaces in one process. A namespace separates tenants; a
// kagzi.Worker has one. A [Worker] of this package has those of a database: it runs a kagzi.Worker for each namespace
// that has something to do, and none for the others. [List] names the namespaces of a database.
// [Databases] does so for several databases, and [Move] takes a namespace from one to another.
//
//	search: one exchange, each second ──► namespaces with due runs, schedules, deadlines …
//	notifications of all namespaces   ──►   │
//	                                        ▼
//	             none ──► starting ──► a kagzi.Worker of the namespace ──► idle for a while ──► stopped ──► none
//	                                     │
//	                                     ├─ slots: shared, each namespace in turn
//	                                     ├─ heartbeats: a few connections for all
//	                                     └─ notifications: one connection for all
//
// So each promise of a kagzi.Worker holds in each namespace, and one without work costs next to nothing. See
// docs/namespaces.md for the differences.
package namespaces

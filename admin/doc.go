// Package admin sees and steers what a kagzi.Client starts: it is for operators and their tools, and for the parts of a
// service that play that role. Who writes workflows, and starts them, does not need it. [New] makes its Client from a
// kagzi.Client, and reads and changes the same namespace.
//
// It has the verbs for one run (resume, restart, fork, update, terminate, delete, pause) and for all runs that a filter
// selects; pauses and limits of queues, keys and steps; schedules; the fleet of workers; consumers; health, counts,
// statistics and latencies; and the audit log, which records who has changed what. The dashboard and the command line
// are made of it.
package admin

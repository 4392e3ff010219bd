// Package admin sees and steers what a kagzi.Client starts: it is for operators and their tools, and for the parts of a
// service that set limits or look after its own runs. Those who only write workflows and start them do not need it.
// [New] makes its Client from a kagzi.Client, of the same namespace. What every service does is there: find, list, look
// at, cancel and signal runs, and declare schedules.
//
//	operator := admin.New(client)
//	err := operator.Pause(ctx, admin.Target{Queue: "shop"}, kagzi.Reason("migration"))
//
// It has the verbs for one run (resume, restart, fork, update, terminate, delete, pause) and for all runs that a filter
// selects; pauses and limits of queues, keys and steps; schedules; the fleet of workers; consumers; health, counts,
// statistics and latencies; and the audit log, which records who has changed what. The dashboard and the command line
// are made of it.
package admin

// Package admin sees and steers what a kagzi.Client starts: it is for operators and their tools, and for the parts of a
// service that set limits or look after its own runs. Those who only write workflows and start them do not need it.
// [New] makes its Client from a kagzi.Client, of the same namespace. That client has the calls of every service: find,
// list, look at, cancel and signal runs, and declare schedules.
//
//	operator := admin.New(client)
//	err := operator.Runs.Resume(ctx, kagzi.ID("order-42"), kagzi.Reason("the bank is back"))
//	err = operator.Pauses.Set(ctx, admin.Target{Queue: "shop"}, kagzi.Reason("migration"))
//
// A verb is found by its noun, which is a field of the Client: [Runs] are resumed, restarted, forked, updated,
// terminated, deleted, paused and counted; there are also [Messages], [Schedules], [Queues], [Keys], [Limits] on steps,
// [Pauses], [Workers], [Topics] and [Consumers]. Methods of the Client itself are about the namespace as a whole:
// health, statistics, latencies, outcomes, stranded runs, and the audit log, which records who has changed what. The
// dashboard and the command line are made of it.
package admin

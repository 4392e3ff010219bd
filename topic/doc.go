// Package topic has durable streams of events, and the workflows that consume them: it is for programs in which one
// event has several readers, or a reader that wants many events at once. A single message for a single run is a
// kagzi.Signal, and does not need it.
//
//	var Received = topic.Define[Email]("email.received")
//
//	err := topic.New(client).Publish(ctx, Received.With(email), kagzi.InTx(tx)) // from a service
//	err := topic.Publish(ctx, "received", Received.With(email))                // from a workflow
//
// [Define] names a topic and the type of its events. [Publish] publishes from a workflow, and [Client.Publish] from
// anywhere else, also in a transaction of the caller's. [Consume] gives a worker the function of a consumer, which runs
// when there is something for it, and [StartOn] starts a run for each event. [WaitEvent] waits in a workflow for one
// event. Programs read with [Events], [Follow] and [Await]. [Runs] is a topic of Kagzi's own.
package topic

package admin_test

import (
	"fmt"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
)

// A caller that changes something says who it is, and why. Declaring the same limits again changes nothing, so that is
// not in the log.
func ExampleClient_Audit() {
	ctx, _, client, _ := setup()
	defer teardown()
	limits := admin.QueueLimits{Queue: "mail", MaxRunning: 5}
	_ = admin.New(client).Queues.Set(ctx, limits, kagzi.Actor("deploy 812"))
	_ = admin.New(client).Queues.Set(ctx, limits, kagzi.Actor("deploy 813"))
	limits.MaxRunning = 50
	_ = admin.New(client).Queues.Set(ctx, limits, kagzi.Actor("ada"), kagzi.Reason("the newsletter is late"))
	_ = admin.New(client).Pauses.Set(ctx, admin.Target{Queue: "mail"}, kagzi.Actor("bob"),
		kagzi.Reason("the provider complains"))

	entries, _ := admin.New(client).Audit(ctx, admin.AuditFilter{Kind: admin.AuditQueue, Name: "mail"})
	for _, e := range entries {
		fmt.Println(e.Action, "by", e.Actor, e.Reason, e.Changes)
	}
	// Output:
	// PAUSED by bob the provider complains []
	// UPDATED by ada the newsletter is late [{max_running 5 50}]
	// UPDATED by deploy 812  [{max_running  5}]
}

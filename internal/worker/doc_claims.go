// # Claiming runs
//
// A session has one loop of claims. It sleeps until the next run is due, or until a hint comes, while slots are free.
//
//	session                                   Postgres
//	  │ lease := random UUID, before the statement
//	  ├── Claim(lease) ──────────────────────►│ lock due rows SKIP LOCKED, set RUNNING, available_at = now + timeout
//	  │◄── runs, inputs, now(), next due ─────┤
//	  ├─ fresh, never woken ──► execute at once
//	  ├─ others ──────────────► read histories beside the claims ──► execute
//	  │
//	  ├── (no answer) ResolveClaim(lease) ───►│ found: execute them, inputs read with the histories
//	  │      then claim at once: the next due time is not known
//	  │      not found: claim on; ask again with growing pauses until 25 s after the claim
//	  │      found late: yield them, PENDING and due
//
// The loop bounds its own mistakes:
//
//   - Before it sleeps, the loop adds up to 1 ms, so that a fleet does not arrive together. It counts the runs that
//     this process has suspended, or started with a delay, since the last claim began: neither that claim nor the
//     leader's last look has seen them. So they cost no claim before they are due.
//   - After a failed claim, the next one takes half as many runs: the inputs may have been too much for the time.
//   - A drain does not wait for a claim whose answer was lost. It asks once, and once more when the claim has ended.
//   - If a worker claims a run that it still executes, because the lease ended or the run was cancelled and resumed,
//     the older execution ends as one that lost its lease. It shares no flush with the newer one.
//
// The policy of claims is in package internal/claims, what a claim writes in store/doc_claim.go, crash-loop suspects in
// doc_suspects.go.
//
// # Histories
//
// Histories are read while their runs are registered with the session. So the heartbeat extends their leases, and a
// shutdown reaches them. One query reads the histories of a claim. A history that is too large or too slow for that is
// read alone, and delays no other run. If the query fails, the same query about no run tells whether the database or a
// run is at fault.
//
// A run whose history, input or inbox cannot be read is set back with a growing pause. The 20th time, it is FAILED with
// kind.Unreadable.
//
// # Refused claims
//
// If the database refuses a claim, the session searches for the runs at fault (store.Claims.FindRefused) and leaves
// them out of its claims for 2 to 40 seconds. The log and Health name them. Later runs of the same group wait for such
// a run. A session leaves out 1,000 runs at most. A claim that is not refused pays nothing for this.
//
// # Strays
//
// A run may be RUNNING under a live worker that does not execute it: the network may deliver a claim later than 25 s.
// It stands still until its lease ends, and a group stands still behind it. So after a heartbeat, a session that has
// claimed something searches the leases that it gave until 25 s ago, each once (store.Leases.Given). If it neither
// executes nor inserts such a run, then and a heartbeat later, it yields the run under the lease.
//
// Code: store.Claims.Claim, store.Claims.Resolve, store.Claims.Missed, store.Histories.Load. They keep promises 3 and
// 8.
//
// Tests: TestLostClaim, TestClaimAfterALostAnswer, TestRefusedClaimHoldsUpNoOther, TestStraysAreGivenBack,
// TestUnreadableHistoryCostsNobodyElse, TestEndOfARunAheadOfSlots, TestPollIsNotPutOffBeyondASuspendedRun,
// TestSupersededEndIsNotTheResult.
package worker

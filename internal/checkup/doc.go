// Package checkup checks whether a client can work, and whether the work of its namespace is done.
//
// # Health
//
// Health must cost nothing when most is wrong. It finds names by a loose scan of the claim's index, so a million rows
// of a queue cost as much as one. The claim's index has no version, because that would cost the order by time across
// versions.
//
//	runs without keys     the first due run of each queue, workflow and priority
//	runs with keys        DueKeys: the first keys of the line, and of the changes; StandingKeys: keys without a place
//	strays                UnextendedRuns: leases that a live worker would have extended
//	without a handler     Stranded: due runs of a version that no worker has, those whose key is full among them
//
// Each search is bounded:
//
//   - Runs that wait for a slot of their key are in an index without workflows. Health needs only those whose key has a
//     free slot. Such keys are at the front of their line, or no claim has looked at them yet and they have a change.
//     DueKeys reads the first few of both, and the first due runs of each. A key in the line has been late since its
//     place, however long its runs have been due: so a long backlog is no alarm while it has its turns.
//   - StandingKeys finds keys without a place: of the first 500 keys with waiting runs, those whose slots the same runs
//     have held for long.
//   - Stranded must also find runs whose key is full, so it reads the first runs of each key. Stranded due runs slow
//     the claims of their workflow: 10,000 halve a drain's speed, and 100,000 leave a fifteenth.
//   - A run that is late needs more workers, unless a limit of its queue is used up (QueueStates, read only if
//     something is late). A rate counts as used up if its newest token was taken within the last 5 seconds. A run that
//     holds its slot needs no further slot, so it counts as late whatever the limits are.
//
// Code: the functions of package store/inspect with these names, and doctor.Examine. Tests: TestHealthReadsLittle,
// TestHealthReadsLittleOfKeys, TestStrandedIsBounded, TestStrandedOfManyKeysIsBounded, TestExamineOfPlainUser. They
// hold that a report reads little, whatever the tables have. TestHealthOfLimitedQueues, TestHealthOfPausedWork and
// TestDueKeysBetweenClaims hold that it asks for workers only where they would help.
package checkup

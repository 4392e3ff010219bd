// Package worker is one call of Worker.Run: a [Session] claims runs, holds their leases, reads their histories, lets
// package replay execute them, and writes what they record.
//
// lifecycle.go begins and runs a session, and drain.go drains it. Its state is in session.go, its configuration in
// config.go. Its work: claims.go, leftout.go, orphans.go and reservations.go get runs; held.go is one of them;
// loader.go reads their histories; flush.go and batchers.go write; refresh.go passes on news; heartbeater.go keeps the
// worker's row and the leases; watch.go looks for code that hangs. internal/claims decides what to claim next.
package worker

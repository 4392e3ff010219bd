// Package worker is one call of Worker.Run: a [Session] claims runs, holds their leases, reads their histories, lets
// package replay execute them, and writes what they record.
//
// A session has parts, each in the files of one first word:
//
//	claimer      claims*.go       gets runs, and lets them begin; internal/claims decides what to claim next
//	roster       roster*.go       the runs that the session holds, or is about to hold; held.go is one of them
//	orphans      orphans.go       yields runs that no execution has
//	loader       loader*.go       reads histories
//	flusher      flush*.go        writes the records of runs
//	news         news.go          passes on changes of the rows of runs
//	heartbeater  heartbeater*.go  keeps the worker's row and the leases
//	watchdog     held_hung.go     looks for code that hangs
//
// session*.go joins them, runs them, and drains them. They share one mutex.
package worker

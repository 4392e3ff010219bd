// Package limits is the part of a worker in the limits on steps: it asks the database for the right to begin a step, in
// one transaction for steps that ask about the same time. See doc_limits.go.
package limits

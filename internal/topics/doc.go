// Package topics publishes events. Publishers of a process that come while another event is being written share the
// next statement and its commit.
//
// If a shared statement fails, each call publishes its event alone, as a repetition. If the statement has waited for a
// lock, events with IDs of the application are published apart for a second. See store/doc_topics.go for positions and
// readers.
package topics

// # Headers and metadata
//
// Headers are a column of the run. The process that starts a child merges its headers, from its parent's claim. The
// statement that starts a compensation does so for that. A schedule, a restart and a fork copy theirs in SQL. The
// headers of a message that a wait takes are the input of its SIGNAL record, so a replay reads them with the history.
//
//	SetMetadata ─► record of kind METADATA, with the changed tags ─► flush: changes the run's row in the record's
//	                                                                 transaction, under its lease, in their order
//
// No branch waits for a change of metadata. The first change, by whatever process, keeps the metadata of the start in
// first_metadata, and the claim returns those. So the metadata that the code sees is a function of its history: those
// of the start, and the recorded changes that the branch knows of, by their positions. A restart begins with the
// metadata of the start. A fork begins with these and the changes in the history that it copies.
//
// Test: TestLostAnswersToSetMetadata.
package store

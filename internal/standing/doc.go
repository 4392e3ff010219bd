// Package standing is what a session and its runs know of their worker: its ID, whether others may take it for dead,
// the database's time, and whether the database answers. A session changes it, and both ask it.
package standing

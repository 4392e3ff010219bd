// Release prepares a release of all public modules of the repository. It pushes nothing, and changes neither the
// branch nor the work tree:
//
//	go run ./internal/release v0.1.0          # what `make release VERSION=v0.1.0` calls
//	go run ./internal/release -check v0.1.0   # only says what is missing
//
// In the repository the modules find each other by replace lines, so that each of them builds and is tested with the
// versions of its own go.mod. A tag must not have these lines: go install refuses them, and the required version
// v0.0.0 does not exist. So the tags are on a commit of their own, which [newCandidate] makes in a clone:
//
//	main ──► release commit ──► back to development ──► main
//	         │ v0.1.0, ui/v0.1.0, otel/v0.1.0, …     └ the files of the first main again
//	         └ no replace lines; ours required at v0.1.0, with their sums in go.sum
//
// The go command itself fetches each module from the clone, as it would from the public repository. Its download cache
// is then the file-system proxy from which [candidate.install] installs the release in an empty folder. A module's sum
// is known before the next one is fetched, because the modules come in the order of their dependencies.
//
// The folder dist gets a bill of materials (CycloneDX) of each module, the sums of the modules as in go.sum, and the
// checksums of these files.
package main

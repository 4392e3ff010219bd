// Package operations has black-box tests of what people do to runs and workers: cancel, resume, restart, fork, drain;
// and rights, settings and pools.
package operations

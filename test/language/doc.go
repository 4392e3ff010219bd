// Package language has black-box tests of the language of workflows: steps, sleeps, branches, groups, children,
// signals, and how each is replayed.
package language

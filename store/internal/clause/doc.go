// Package clause has the parts of statements that package store and package inspect share: which runs hold a slot, wait
// for one, can be claimed or are paused, and the columns of a run. The columns are those of the only table of the
// select around them.
package clause

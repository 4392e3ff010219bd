// Package epochs has the tests of runs that continue with another input.
package epochs

// Package values has black-box tests of the values of runs.
package values

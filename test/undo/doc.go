// Package undo has black-box tests of compensations: when they are registered, when they run, and how they end.
package undo

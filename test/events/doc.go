// Package events has black-box tests of runs and programs that wait for events of topics.
package events

// Package crash has black-box tests of survival: processes that are killed, stopped or fenced, databases that
// restart, answers that are lost, and deploys.
package crash

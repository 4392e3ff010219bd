//go:build long

package main

import "testing"

// TestCheckSeesEveryRunOfTemporal is TestCheckSeesEveryRun of the engine whose server takes minutes to build.
func TestCheckSeesEveryRunOfTemporal(t *testing.T) { checkSeesEveryRun(t, temporal, temporalLocal) }

package crash_test

import (
	"os"
	"testing"

	"github.com/kagzi/kagzi/internal/dbtest"
)

func TestMain(m *testing.M) {
	if spec := os.Getenv(workerEnv); spec != "" {
		os.Exit(workerProcess(spec)) // started by a test
	}
	dbtest.Main(m)
}

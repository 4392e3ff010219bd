package language_test

import (
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// enough is a Timeout that passes while a test waits, and in which a run begins, and does what it has to, also on a
// machine that is slow or stands still for a few seconds.
const enough = kagzi.Timeout(6 * time.Second)

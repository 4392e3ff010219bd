// Package names_test gives hostile names to every function that takes one: each is refused with a clear error before
// any statement is sent, or it works, and is read back byte for byte.
package names_test

import (
	"testing"

	"github.com/kagzi/kagzi/internal/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

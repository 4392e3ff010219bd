package namespaces

import (
	"testing"

	"github.com/kagzi/kagzi/internal/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

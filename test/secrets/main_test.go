// Package secrets_test checks that payloads and passwords stay out of logs, errors, notifications and all columns that
// are not payloads: docs/security.md says which those are.
package secrets_test

import (
	"testing"

	"github.com/kagzi/kagzi/internal/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

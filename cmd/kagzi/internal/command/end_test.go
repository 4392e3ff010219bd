package command

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// A statement that the server ends because the command's time is over is the end of that time.
func TestTimeoutOfAStatement(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("find a run: %w", &pgconn.PgError{Code: "57014", Message: "the server ended it"})
	for _, c := range []struct {
		timeout time.Duration
		code    Code
		says    string
	}{
		{time.Second, ExitTimeout, "no answer within the --timeout of 1s"},
		{0, ExitFailed, "the server ended it"},
	} {
		p := &Program{timeout: c.timeout, DB: Database{url: "postgres://localhost/kagzi"}}
		if got, says := p.exitCode(t.Context(), err), p.explain(err); got != c.code || !strings.Contains(says, c.says) {
			t.Errorf("with a timeout of %v it exits with %v and says %q", c.timeout, got, says)
		}
	}
}

package worker

import "github.com/kagzi/kagzi/internal/testhook"

// SessionOf is the session behind the hooks of a worker that runs.
func SessionOf(s testhook.Session) *Session { return s.(testSession).s }

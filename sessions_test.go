package kagzi

import (
	"github.com/google/uuid"
)

// theSession is the client's worker under way.
func theSession(c *Client) *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.sessions {
		return s
	}
	return nil
}

// executionOf is what executes the run now, on a worker of c.
func (k *kit) executionOf(c *Client, id RunID) (e *execution) {
	k.t.Helper()
	waitFor(k.t, "the run is in memory", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for s := range c.sessions {
			s.mu.Lock()
			if e == nil {
				e = s.executing[uuid.MustParse(string(id))]
			}
			s.mu.Unlock()
		}
		return e != nil
	})
	return e
}

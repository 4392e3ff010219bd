package admin

import (
	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/core"
)

// A Client sees and steers the runs, schedules, limits and workers of the namespace of a kagzi.Client. It is safe for
// concurrent use, and needs no Close.
type Client struct{ core *core.Client }

// New returns the Client of c's namespace. It does no I/O. If c is nil, each method returns an error.
func New(c *kagzi.Client) *Client { return &Client{c.Core()} }

// of returns the core of the client, nil if there is none.
func of(c *Client) *core.Client {
	if c == nil {
		return nil
	}
	return c.core
}

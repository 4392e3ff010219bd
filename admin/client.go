package admin

import (
	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/core"
)

// A Client sees and steers the namespace of a kagzi.Client. Each noun of it is a field, which has the verbs for it. The
// methods are about the namespace as a whole. It is safe for concurrent use, and needs no Close.
type Client struct {
	Runs      Runs
	Messages  Messages
	Schedules Schedules
	Queues    Queues
	Keys      Keys
	Limits    Limits
	Pauses    Pauses
	Workers   Workers
	Topics    Topics
	Consumers Consumers

	core *core.Client
}

// New returns the Client of c's namespace. It does no I/O. If c is nil, each method returns an error.
func New(c *kagzi.Client) *Client {
	to := c.Core()
	return &Client{
		Runs{to},
		Messages{to},
		Schedules{to},
		Queues{to},
		Keys{to},
		Limits{to},
		Pauses{to},
		Workers{to},
		Topics{to},
		Consumers{to},
		to,
	}
}

package admin

import (
	"context"
	"time"

	"github.com/kagzi/kagzi/internal/core"
)

// Topics has the topics of package topic: admin.New(client).Topics.
type Topics struct{ core *core.Client }

// TopicInfo is a topic that has events, or consumers that subscribe to it. Its JSON follows the rules of
// [kagzi.RunInfo].
type TopicInfo struct {
	Name   string `json:"name"`
	Events int    `json:"events"` // that are kept; see More
	// there are more than were counted: up to 1,000 are, fewer if there are many topics
	More        bool      `json:"more,omitempty"`
	Newest      time.Time `json:"newest,omitzero"`       // when the newest event was published
	Subscribers []string  `json:"subscribers,omitempty"` // its consumers, by name; the first 100
}

// List returns the first thousand topics, by name.
func (t Topics) List(ctx context.Context) ([]TopicInfo, error) {
	err := t.core.Usable(ctx)
	if err == nil {
		err = t.core.CheckSchema(ctx, nil)
	}
	var out []TopicInfo
	if err == nil {
		rows, e := t.core.Inspect.TopicStates(ctx)
		for _, r := range rows {
			out = append(out, TopicInfo{r.Topic, r.Events, r.More, r.Newest, r.Subscribers})
		}
		err = e
	}
	return out, t.core.FailedIf(ctx, err, "list topics")
}

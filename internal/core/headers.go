package core

import (
	"encoding/json"
	"maps"

	"github.com/kagzi/kagzi/internal/plainjson"
)

// Tags returns headers or metadata from the form in which they are stored; nil if there are none.
func Tags(stored json.RawMessage) map[string]string {
	var tags map[string]string
	if stored != nil {
		_ = plainjson.Unmarshal(stored, &tags) // written from a map of strings
	}
	return tags
}

// StoredTags is the inverse of Tags.
func StoredTags(tags map[string]string) json.RawMessage {
	if len(tags) == 0 {
		return nil
	}
	data, _ := json.Marshal(tags) // a map of strings always encodes
	return data
}

// Over returns stored headers with others over them: of one name the second value counts.
func Over(over, base json.RawMessage) json.RawMessage {
	all := Tags(base)
	if all == nil {
		return over
	}
	maps.Copy(all, Tags(over))
	return StoredTags(all)
}

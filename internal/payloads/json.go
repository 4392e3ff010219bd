package payloads

import "encoding/json"

// InJSON returns a payload as the two fields that stand for it in JSON: text if it is JSON itself, else its bytes.
func InJSON(data json.RawMessage) (text json.RawMessage, bytes []byte) {
	if json.Valid(data) {
		return data, nil
	}
	return nil, data
}

// FromJSON is the inverse of InJSON.
func FromJSON(text json.RawMessage, bytes []byte) json.RawMessage {
	if bytes != nil {
		return bytes
	}
	return text
}

package kagzi

import (
	"bytes"
	"encoding/binary"
)

// The input of a batch is a sequence of frames, one for each item: a mark, the length of the item as it is stored, and the item.
// The database cannot join the items in any other way, because the client's Codec and Sealer made them.
var frameMark = []byte("\x00kagzi\x00\x01")

func frame(item []byte) []byte {
	framed := make([]byte, 0, len(frameMark)+4+len(item))
	framed = append(framed, frameMark...)
	framed = binary.BigEndian.AppendUint32(framed, uint32(len(item)))
	return append(framed, item...)
}

// unframe returns the items of a stored input, and false if it is not that of a batch.
func unframe(stored []byte) (items [][]byte, ok bool) {
	for len(stored) > 0 {
		rest, marked := bytes.CutPrefix(stored, frameMark)
		if !marked || len(rest) < 4 {
			return nil, false
		}
		n := binary.BigEndian.Uint32(rest)
		if rest = rest[4:]; uint64(len(rest)) < uint64(n) {
			return nil, false
		}
		items, stored = append(items, rest[:n:n]), rest[n:]
	}
	return items, items != nil
}

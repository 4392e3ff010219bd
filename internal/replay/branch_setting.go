package replay

// A setting counts how often a branch has changed each value, by the ID of its record. It is used like a passage.
type setting struct{ values map[string]*valueCount }

// A valueCount counts a branch's changes of one value.
type valueCount struct {
	calls   int64 // in this execution, those of the history, too
	written int64 // the number of the last change that is in the table, or on its way
}

// count counts one more change on the branch, and returns its number; zero if the table has it. lastSet returns the
// number of the last one in the history. past says that the branch has done something that its history does not have:
// then every change is new, even if the code of an earlier version made more of them.
func (s *setting) count(id string, lastSet func(id string) int64, past bool) int64 {
	c := s.values[id]
	if c == nil {
		c = &valueCount{written: lastSet(id)}
		if s.values == nil {
			s.values = map[string]*valueCount{}
		}
		s.values[id] = c
	}
	c.calls++
	if past {
		c.calls = max(c.calls, c.written+1)
	}
	if c.calls <= c.written {
		return 0
	}
	c.written = c.calls
	return c.calls
}

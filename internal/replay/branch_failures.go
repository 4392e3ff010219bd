package replay

// fails notes that the branch is given the failure recorded under id.
func (b *Branch) fails(id string) *knownFailure {
	b.e.Lock()
	defer b.e.Unlock()
	return b.failsLocked(id)
}

func (b *Branch) failsLocked(id string) *knownFailure {
	f := &knownFailure{id: id, by: b}
	b.e.giveFailureLocked(f)
	b.unfollowed = append(b.unfollowed, f)
	return f
}

// follow notes that the branch begins something: it has dealt with the failures that it knew of.
func (b *Branch) follow() {
	for _, f := range b.unfollowed {
		f.followed.Store(true)
	}
	b.unfollowed = nil
}

// learn gives b, which has waited for another branch, the failures that nothing has followed there, and the changes of
// metadata.
func (b *Branch) learn(from *Branch) {
	if from != nil {
		b.unfollowed = append(b.unfollowed, from.unfollowed...)
		b.knowMetadata(from.metadata...)
	}
}

// stands reports whether the function has dealt with the failure: something was begun after it, or after the end of a
// branch that contains it.
func (f *knownFailure) stands() bool {
	if f.followed.Load() {
		return true
	}
	for b := f.by; b != nil; b = b.parent {
		if b.end != nil && b.end.followed.Load() {
			return true
		}
	}
	return false
}

package replay

// fails notes that the branch is given the failure recorded under id.
func (k *knowing) fails(id string) *knownFailure {
	k.by.mu.Lock()
	defer k.by.mu.Unlock()
	return k.failsLocked(id)
}

func (k *knowing) failsLocked(id string) *knownFailure {
	f := &knownFailure{id: id, by: &k.by.node}
	k.by.e.giveFailureLocked(f)
	k.unfollowed = append(k.unfollowed, f)
	return f
}

// knowsFailure notes that the branch is given a failure that another branch was given before.
func (k *knowing) knowsFailure(f *knownFailure) { k.unfollowed = append(k.unfollowed, f) }

// follow notes that the branch begins something: it has dealt with the failures that it knew of.
func (k *knowing) follow() {
	for _, f := range k.unfollowed {
		f.followed.Store(true)
	}
	k.unfollowed = nil
}

// learn is called when the branch has waited for another one: it learns of the failures that nothing has followed
// there, and of the changes of metadata.
func (k *knowing) learn(from *Branch) {
	if from != nil {
		k.unfollowed = append(k.unfollowed, from.unfollowed...)
		k.knowMetadata(from.metadata...)
	}
}

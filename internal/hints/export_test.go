package hints

// ListenerUsers returns how many keep the listener open.
func (h *Hints) ListenerUsers() int { return int(h.listener.users.Load()) }

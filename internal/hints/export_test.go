package hints

import "time"

// ListenerUsers returns how many keep the listener open.
func (h *Hints) ListenerUsers() int { return int(h.listener.users.Load()) }

// ForgetDemand makes h forget that other processes may wait.
func (h *Hints) ForgetDemand() {
	h.demand.mu.Lock()
	defer h.demand.mu.Unlock()
	h.demand.until = time.Time{}
}

package goroutine

// Signal puts a value into c, a channel with a buffer of one, unless it has one. The receiver then checks again the
// condition that it waits for.
func Signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

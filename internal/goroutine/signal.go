package goroutine

// Signal puts a value into c, a channel with a buffer of one, unless one is there: whoever receives it looks again at what it
// waits for.
func Signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

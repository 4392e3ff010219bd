//go:build unix && !linux

package localpg

// start starts the program, and a shell that ends the program when this process ends.
func (p *process) start() error {
	if err := p.cmd.Start(); err != nil {
		return err
	}
	unwatch, err := watch(p.cmd.Process.Pid)
	if err != nil {
		_ = p.cmd.Process.Signal(shutdownImmediate)
		_ = p.cmd.Wait()
		return err
	}
	go func() {
		p.err = p.cmd.Wait()
		unwatch()
		close(p.done)
	}()
	return nil
}

//go:build unix && !linux

package localpg

// start starts the program, and beside it a shell that ends it when this process ends.
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

// memoryFree returns 0: these systems have no file system in memory that everybody can use.
func memoryFree(string) uint64 { return 0 }

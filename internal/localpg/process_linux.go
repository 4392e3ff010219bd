package localpg

import (
	"runtime"
	"syscall"
)

// start starts the program so that the kernel ends it when this process ends.
func (p *process) start() error {
	p.cmd.SysProcAttr.Pdeathsig = syscall.SIGQUIT
	started := make(chan error)
	go func() {
		// The kernel sends the signal when the thread that forked ends, so the thread must live as long as the program.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
			close(p.done)
		}
	}()
	return <-started
}

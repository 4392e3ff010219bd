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
		// The signal follows the thread that forked, not the process: it must live as long as the program.
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

// memoryFree returns how many bytes are free in dir, or 0 if it is not in memory.
func memoryFree(dir string) uint64 {
	const tmpfs = 0x01021994
	var stat syscall.Statfs_t
	if err := syscall.Statfs(dir, &stat); err != nil || int64(stat.Type) != tmpfs {
		return 0
	}
	return stat.Bavail * uint64(stat.Bsize)
}

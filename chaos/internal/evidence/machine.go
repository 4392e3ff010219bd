package evidence

import (
	"fmt"
	"os"
	"runtime"
)

// Runnable returns how many threads of the machine want to run now, for each of its processors; zero if the system does
// not tell.
func Runnable() float64 {
	var one, five, fifteen float64
	var runnable int
	text, err := os.ReadFile("/proc/loadavg")
	if err == nil {
		_, err = fmt.Sscanf(string(text), "%g %g %g %d/", &one, &five, &fifteen, &runnable)
	}
	if err != nil {
		return 0
	}
	return float64(runnable) / float64(runtime.NumCPU())
}

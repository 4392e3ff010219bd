package evidence

import (
	"fmt"
	"os"
)

// CPUPressure returns in how many percent of the last ten seconds some process waited for a processor, and zero if the system does not
// tell.
func CPUPressure() (percent float64) {
	text, err := os.ReadFile("/proc/pressure/cpu")
	if err == nil {
		_, err = fmt.Sscanf(string(text), "some avg10=%g", &percent)
	}
	if err != nil {
		return 0
	}
	return percent
}

package main

import "fmt"

// fleetSlots are the slots of all processes of a fleet together.
const fleetSlots = 512

// fleetFigures drain by the same number of slots: of one worker, and of many, each in a process of its own.
func fleetFigures(l *lab) (all []figure) {
	for _, steps := range []int{0, 5} {
		for _, n := range []int{1, 8, 32} {
			d := &drainage{state: used, steps: steps, concurrency: fleetSlots / n, processes: n, long: 6 * roundTime}
			name := fmt.Sprintf("%s, %d processes with %d slots each", plural(steps, "step"), n, d.concurrency)
			if n == 1 {
				name = fmt.Sprintf("%s, one process with %d slots", plural(steps, "step"), fleetSlots)
			}
			f := d.figure(l, "Workers in many processes", name, ours, riverTuned, dbosTuned)
			f.rounds = 3
			f.columns = []string{"steps/s, or runs/s without steps"}
			all = append(all, f)
		}
	}
	return all
}

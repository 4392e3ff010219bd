package main

import "fmt"

// payloadFigures drain runs whose step returns a document.
func payloadFigures(l *lab) (all []figure) {
	for _, kB := range []int{100, 1024} {
		d := &drainage{state: used, steps: 1, concurrency: 4, result: kB << 10}
		f := d.figure(l, "Payloads", fmt.Sprintf("1 step that returns %d kB, concurrency %d", kB, d.concurrency), ours,
			riverTuned, dbosTuned)
		f.columns = []string{"MB/s", "server, CPU ms/MB", "client, CPU ms/MB"}
		all = append(all, f)
	}
	return all
}

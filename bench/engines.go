package main

import "fmt"

// engines are all that are compared, in the order of the report.
var (
	ours         engine = kagziEngine{}
	riverTuned   engine = riverEngine{tuned: true}
	riverDefault engine = riverEngine{}
	floor        engine = floorEngine{}
)

func engineNamed(name string) (engine, error) {
	for _, e := range []engine{ours, riverTuned, riverDefault, floor} {
		if e.name() == name {
			return e, nil
		}
	}
	return nil, fmt.Errorf("no engine %q", name)
}

// drainConnections are the sizes of the engines' pools. With more connections neither gets faster.
func drainConnections(e engine) int32 {
	if e == riverTuned {
		return 32
	}
	return 8
}

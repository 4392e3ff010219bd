package main

import "fmt"

// engines are all that are compared, in the order of the report.
var (
	ours         engine = kagziEngine{}
	oursKeyed    engine = kagziEngine{keyed: true}
	riverTuned   engine = riverEngine{tuned: true}
	riverDefault engine = riverEngine{}
	dbosTuned    engine = dbosEngine{tuned: true}
	dbosDefault  engine = dbosEngine{}
	dbosDirect   engine = dbosEngine{tuned: true, direct: true}
	floor        engine = floorEngine{}

	goWorkflowsTuned   engine = goWorkflowsEngine{tuned: true}
	goWorkflowsDefault engine = goWorkflowsEngine{}
	temporal           engine = temporalEngine{}
	temporalLocal      engine = temporalEngine{local: true}
)

func engineNamed(name string) (engine, error) {
	for _, e := range []engine{
		ours, oursKeyed, riverTuned, riverDefault, dbosTuned, dbosDefault, dbosDirect, goWorkflowsTuned,
		goWorkflowsDefault, temporal, temporalLocal, floor,
	} {
		if e.name() == name {
			return e, nil
		}
	}
	return nil, fmt.Errorf("no engine %q", name)
}

// oneByOne says that an engine has no call that starts many runs. Figures of very many leave it out.
func oneByOne(e engine) bool {
	switch e {
	case goWorkflowsTuned, goWorkflowsDefault, temporal, temporalLocal:
		return true
	}
	return false
}

// drainConnections are the sizes of the engines' pools. With more connections none gets faster.
func drainConnections(e engine) int32 {
	switch e {
	case riverTuned, dbosTuned, goWorkflowsTuned, goWorkflowsDefault:
		return 32
	case dbosDefault:
		return 20
	}
	return 8
}

// Package spec has specifications of Kagzi's protocols, and the checker that tries all of their states: see README.md.
package spec

import (
	"fmt"
	"strings"
)

// A specification is a set of states with the steps between them. S is a struct of small numbers: two states are the
// same if they are equal.
type specification[S comparable] struct {
	init  S
	steps func(S) []step[S] // all that may happen next
	wrong func(S) string    // the rule that the state breaks; empty if it breaks none
	done  func(S) bool      // liveness: however it went so far, steps that are no faults can lead to such a state
	text  func(S) string    // the state, for a trace
}

// A step is something that may happen.
type step[S comparable] struct {
	what  string
	to    S
	fault bool // a crash, a lost answer: it may happen, and nothing may depend on it
}

// A verdict is what the checker has found.
type verdict struct {
	states, steps, depth int
	wrong                string   // the broken rule; empty if none is
	trace                []string // the shortest way to it
}

func (v verdict) String() string {
	if v.wrong == "" {
		return fmt.Sprintf("%d states, %d steps, at most %d from the first one", v.states, v.steps, v.depth)
	}
	return fmt.Sprintf("%s, after %d steps:\n  %s", v.wrong, len(v.trace)-1, strings.Join(v.trace, "\n  "))
}

// mostStates is the most states of a specification. One that has more is a mistake: most likely a number grows without
// end.
const mostStates = 3_000_000

// A visit is a state that the checker has reached.
type visit struct {
	from   int // the index of the state before it
	what   string
	depth  int
	goesOn bool // a step that is no fault leads on
}

// check tries all states, breadth first, so that a trace is as short as can be.
func check[S comparable](spec specification[S]) (v verdict) {
	states, visits := []S{spec.init}, []visit{{from: -1, what: "begin"}}
	index := map[S]int{spec.init: 0}
	back := [][]int{nil} // the states from which a step that is no fault leads to the state
	trace := func(i int) (lines []string) {
		for ; i >= 0; i = visits[i].from {
			lines = append([]string{fmt.Sprintf("%-55s %s", visits[i].what, spec.text(states[i]))}, lines...)
		}
		return lines
	}
	for i := 0; i < len(states); i++ {
		v.depth = visits[i].depth
		if wrong := spec.wrong(states[i]); wrong != "" {
			v.states, v.wrong, v.trace = len(states), wrong, trace(i)
			return v
		}
		for _, next := range spec.steps(states[i]) {
			v.steps++
			j, known := index[next.to]
			if !known {
				j = len(states)
				index[next.to] = j
				states, visits, back = append(states, next.to),
					append(visits, visit{from: i, what: next.what, depth: visits[i].depth + 1}), append(back, nil)
				if len(states) > mostStates {
					v.wrong = "there are too many states"
					return v
				}
			}
			if !next.fault && i != j {
				back[j] = append(back[j], i)
				visits[i].goesOn = true
			}
		}
	}
	v.states = len(states)
	if i := stuck(states, visits, back, spec.done); i >= 0 {
		v.wrong, v.trace = "from here on nothing but a fault leads to the goal", trace(i)
	}
	return v
}

// stuck returns the first state from which no steps lead to one that is done; -1 if there is none. It prefers one where
// nothing happens any more: its trace shows the mistake, and not only that it will come.
func stuck[S comparable](states []S, visits []visit, back [][]int, done func(S) bool) int {
	reaches := make([]bool, len(states))
	var todo []int
	for i, s := range states {
		if done(s) {
			reaches[i] = true
			todo = append(todo, i)
		}
	}
	for len(todo) > 0 {
		i := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, j := range back[i] {
			if !reaches[j] {
				reaches[j] = true
				todo = append(todo, j)
			}
		}
	}
	first := -1
	for i := range states {
		switch {
		case reaches[i]:
		case !visits[i].goesOn:
			return i
		case first < 0:
			first = i
		}
	}
	return first
}

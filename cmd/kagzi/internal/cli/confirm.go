package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/kagzi/kagzi"
)

// confirm asks the person at the terminal. It returns false unless the answer is yes.
func (a *app) confirm(ctx context.Context, question string) (bool, error) {
	fmt.Fprintf(a.screen.Err, "%s [y/N] ", question)
	answer := make(chan string, 1)
	go func() { // a read from a terminal knows no context: the program ends without it
		line, _ := bufio.NewReader(a.world.In).ReadString('\n')
		answer <- line
	}()
	select {
	case <-ctx.Done():
		a.say("")
		return false, context.Cause(ctx)
	case line := <-answer:
		line = strings.ToLower(strings.TrimSpace(line))
		return line == "y" || line == "yes", nil
	}
}

// sure asks unless yes is given. It refuses if nobody can be asked.
func (a *app) sure(ctx context.Context, yes bool, question string) (bool, error) {
	switch {
	case yes:
		return true, nil
	case !a.interactive():
		return false, usagef("nobody can be asked, as this is no terminal: give --yes")
	}
	sure, err := a.confirm(ctx, question)
	if err == nil && !sure {
		a.say("Nothing was changed.")
	}
	return sure, err
}

func isNotFound(err error) bool { return errors.Is(err, kagzi.ErrNotFound) }

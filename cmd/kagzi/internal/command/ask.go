package command

import (
	"bufio"
	"context"
	"fmt"
	"strings"
)

// Confirm asks the person at the terminal. It returns false unless the answer is yes.
func (p *Program) Confirm(ctx context.Context, question string) (bool, error) {
	fmt.Fprintf(p.Screen.Err, "%s [y/N] ", question)
	answer := make(chan string, 1)
	go func() { // a read from a terminal knows no context: the program ends without it
		line, _ := bufio.NewReader(p.World.In).ReadString('\n')
		answer <- line
	}()
	select {
	case <-ctx.Done():
		p.Say("")
		return false, context.Cause(ctx)
	case line := <-answer:
		line = strings.ToLower(strings.TrimSpace(line))
		return line == "y" || line == "yes", nil
	}
}

// Sure asks unless yes is given. It refuses without a terminal.
func (p *Program) Sure(ctx context.Context, yes bool, question string) (bool, error) {
	switch {
	case yes:
		return true, nil
	case !p.Interactive():
		return false, Usagef("nobody can be asked, as this is no terminal: give --yes")
	}
	sure, err := p.Confirm(ctx, question)
	if err == nil && !sure {
		p.Say("Nothing was changed.")
	}
	return sure, err
}

package cli_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi/cmd/kagzi/internal/cli"
)

// commands returns all commands below c that people see, and c.
func commands(c *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			all = append(all, commands(sub)...)
		}
	}
	return all
}

func TestEveryCommandExplainsItself(t *testing.T) {
	t.Parallel()
	s := &shell{t: t}
	for _, c := range commands(cli.Root()) {
		t.Run(c.CommandPath(), func(t *testing.T) {
			if c.Short == "" || c.Long == "" || !strings.Contains(c.Example, "kagzi") {
				t.Errorf("%s lacks a Short, a Long or an Example", c.CommandPath())
			}
			if strings.HasSuffix(c.Short, ".") || c.Short != "" && strings.ToUpper(c.Short[:1]) != c.Short[:1] {
				t.Errorf("the Short of %s is %q: begin with a capital letter, and end without a full stop",
					c.CommandPath(), c.Short)
			}
			help := s.run(strings.TrimPrefix(c.CommandPath(), "kagzi"), "--help").ok()
			help.prints(c.Long, c.Example, "--json", "--database-url", "--timeout")
			for line := range strings.SplitSeq(help.out, "\n") {
				if len([]rune(line)) > 100 {
					t.Errorf("a line of the help is %d characters long: %s", len(line), line)
				}
			}
		})
	}
}

// An example that does not work is worse than none: each one must be a command with flags and arguments that it
// takes.
func TestExamplesOfHelpAreCommands(t *testing.T) {
	t.Parallel()
	n := 0
	for _, c := range commands(cli.Root()) {
		n += wantCommands(t, c.Example)
	}
	if n < 60 {
		t.Errorf("%d examples were found, which must be too few", n)
	}
}

// The commands in tables are complete: those in the text are often only named.
var (
	rows  = regexp.MustCompile(`(?m)^\|.*$`)
	spans = regexp.MustCompile("`(kagzi [^`]+)`")
)

var blocks = regexp.MustCompile("(?ms)^```.*?^```$")

func TestCommandsOfDocumentationAreCommands(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../../../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	for i, file := range append(pages, "../../README.md") {
		least := 0
		if i == len(pages) {
			least = 15
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, block := range blocks.FindAllString(string(text), -1) {
			for line := range strings.SplitSeq(block, "\n") {
				line, _, _ = strings.Cut(line, " #")
				if line = strings.TrimPrefix(line, "$ "); strings.HasPrefix(line, "kagzi ") {
					n += wantCommands(t, line)
				}
			}
		}
		for _, row := range rows.FindAllString(string(text), -1) {
			for _, code := range spans.FindAllStringSubmatch(row, -1) {
				n += wantCommands(t, code[1])
			}
		}
		if n < least {
			t.Errorf("%s has %d commands, which must be too few", file, n)
		}
	}
}

// READMEs promise Go 1.26: a dependency that needs a newer patch release would raise the go directive.
func TestGoVersionIsThatOfTheREADMEs(t *testing.T) {
	t.Parallel()
	for file, has := range map[string]string{
		"../../go.mod": "\ngo 1.26.0\n", "../../README.md": "needs Go 1.26\n",
		"../../../../go.mod": "\ngo 1.26.0\n", "../../../../README.md": "with Go 1.26 and",
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), has) {
			t.Errorf("%s does not have %q", file, has)
		}
	}
}

// wantCommands fails the test unless each kagzi in a text for a shell is a command, with flags and arguments that it
// takes. It returns their number.
func wantCommands(t *testing.T, text string) (n int) {
	t.Helper()
	for line := range strings.SplitSeq(text, "\n") {
		for _, args := range kagziCommands(line) {
			n++
			root := cli.Root()
			found, rest, err := root.Find(args)
			if err == nil {
				err = found.ParseFlags(rest)
			}
			if err == nil && found.Args != nil && found.Runnable() {
				err = found.Args(found, found.Flags().Args())
			}
			misspelt := found.HasSubCommands() && found.Flags().NArg() > 0
			if err != nil || !found.Runnable() || misspelt {
				t.Errorf("%q is no command: %v", line, err)
			}
		}
	}
	return n
}

// kagziCommands returns the arguments of each kagzi in a line of a shell.
func kagziCommands(line string) (all [][]string) {
	if before, inner, ok := strings.Cut(line, "$("); ok {
		inner, after, _ := strings.Cut(inner, ")")
		return append(kagziCommands(inner), kagziCommands(before+"RESULT"+after)...)
	}
	var args []string
	var word strings.Builder
	var quote rune
	quoted := false
	end := func() {
		if word.Len() > 0 || quoted {
			args = append(args, word.String())
		}
		word.Reset()
		quoted = false
	}
	stop := func() {
		end()
		for i, a := range args {
			if a == "kagzi" {
				all = append(all, args[i+1:])
				break
			}
		}
		args = nil
	}
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, quoted = r, true
		case r == ' ':
			end()
		case r == '|' || r == '>':
			stop()
		default:
			word.WriteRune(r)
		}
	}
	stop()
	return all
}

func TestCompletionOfNames(t *testing.T) {
	_, s := newShell(t)
	s.run("completion bash").ok().prints("bash completion")
	s.run("__complete runs list --status", "fa").ok().prints("failed", "cancelled")
	s.run("__complete schedules pause", "").ok()
}

func TestUnknownCommands(t *testing.T) {
	t.Parallel()
	s := &shell{t: t}
	for command, hint := range map[string]string{
		"rums list":    "do you mean runs?",
		"runs lisd":    "do you mean list",
		"bogus":        "kagzi --help lists its commands",
		"runs xxxxxxx": "kagzi runs --help lists its commands",
	} {
		s.run(command).exits(2).says(hint)
	}
	s.run("runs").ok().prints("Available Commands:")
	s.run("").ok().prints("Is all well?")
	s.run("version").ok().prints("schema 1")
}

// Every noun has the command list, also those that are only listed.
func TestNounsHaveList(t *testing.T) {
	_, s := newShell(t)
	for _, noun := range []string{
		"runs", "schedules", "topics", "consumers", "workers", "queues", "keys", "limits",
		"pauses",
	} {
		more := ""
		if noun == "keys" {
			more = " --groups"
		}
		s.run(noun + " list" + more).ok()
		s.run(noun + " ls" + more).ok()
	}
	for _, noun := range []string{"topics", "consumers", "pauses"} {
		s.run(noun).ok()
		s.run(noun + " lst").exits(2)
	}
	s.run("queues list --help").ok().prints("SLOTS HELD")
}

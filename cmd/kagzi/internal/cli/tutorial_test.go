package cli_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
)

// A reader plays docs/tutorial.md: types its commands, and compares what it shows with what they print.
type reader struct {
	*kit.Kit
	t        *testing.T
	shell    *shell
	programs string // the folder of the programs
	address  string // of the shop
	program  *program
}

// A program is one of examples/tutorial, in the first terminal.
type program struct {
	cmd   *exec.Cmd
	log   lockedBuffer
	lines chan string // of its output; closed when it ends
}

// The commands of docs/tutorial.md print what it shows. In its console blocks, the lines after a "$" are the output of
// the command; lines before the first "$" are output of the program in the first terminal. An ellipsis stands for any
// text, or, alone in a line, for any lines.
func TestTutorial(t *testing.T) {
	k, s := newShell(t)
	r := &reader{Kit: k, t: t, shell: s, programs: t.TempDir(), address: freeAddress(t)}
	build := exec.Command("go", "build", "-ldflags=-w", "-o", r.programs, "./examples/tutorial/...")
	build.Dir = "../../../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	page, err := os.ReadFile("../../../../docs/tutorial.md")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.kill)
	blocks := regexp.MustCompile("(?ms)^```console\n(.*?)^```$").FindAllStringSubmatch(string(page), -1)
	if len(blocks) < 15 {
		t.Fatalf("%d console blocks were found, which must be too few", len(blocks))
	}
	for _, block := range blocks {
		first, commands, _ := strings.Cut("\n"+block[1], "\n$ ")
		r.watch(first)
		for command := range strings.SplitSeq(commands, "\n$ ") {
			command, shown, _ := strings.Cut(command, "\n")
			r.play(command, shown)
		}
	}
}

// play types a command, and compares what it prints with what the page shows. It repeats a question until the answer is
// the expected one, as a person does who is too fast.
func (r *reader) play(command, shown string) {
	r.t.Helper()
	name, arguments, _ := strings.Cut(command, " ")
	question := regexp.MustCompile(`^(curl \S+$|kagzi (health|runs (get|list)) ?)`).MatchString(command)
	switch {
	case command == "" || strings.Contains(command, "go test"): // the test runs with those of its module
	case strings.HasPrefix(command, "go run "):
		r.start(filepath.Base(arguments))
		r.watch(shown)
	case name != "curl" && name != "kagzi":
		r.t.Fatalf("the page has a command that this test does not know: %s", command)
	default:
		printed := ""
		if !await.BecomesTrue(await.Patience, func() bool {
			printed = r.execute(name, words(arguments))
			return !question || shows(shown, printed)
		}) || !shows(shown, printed) {
			r.t.Fatalf("%s prints\n%s\nand the page shows\n%s", command, printed, shown)
		}
		r.t.Logf("%s prints\n%s", command, printed)
	}
}

// execute returns what a command prints.
func (r *reader) execute(name string, arguments []string) string {
	r.t.Helper()
	if name == "kagzi" {
		result := r.shell.run("", arguments...)
		return result.out + result.err
	}
	method, url, body := http.MethodGet, "", ""
	for i := 0; i < len(arguments); i++ {
		switch arguments[i] {
		case "-X":
			i++
			method = arguments[i]
		case "-d":
			i++
			method, body = http.MethodPost, arguments[i]
		default:
			url = "http://" + strings.Replace(arguments[i], "localhost:8080", r.address, 1)
		}
	}
	request, err := http.NewRequestWithContext(r.t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	var answer *http.Response
	await.True(r.t, "the shop listens", func() bool {
		answer, err = http.DefaultClient.Do(request)
		return err == nil
	})
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(text)
}

// start starts a program once the one before has ended.
func (r *reader) start(name string) {
	r.t.Helper()
	r.ended()
	p := &program{cmd: exec.Command(filepath.Join(r.programs, name)), lines: make(chan string, 100)}
	p.cmd.Env = append(os.Environ(), "DATABASE_URL="+r.shell.env["KAGZI_DATABASE_URL"], "ADDR="+r.address)
	p.cmd.Stderr = &p.log
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.program = p
	go func() {
		defer close(p.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
}

// watch waits for the lines that the program in the first terminal prints, in any order: orders are dealt with at the
// same time. At ^C it interrupts the program.
func (r *reader) watch(shown string) {
	r.t.Helper()
	shown, _, interrupt := strings.Cut(strings.TrimSpace(shown), "^C")
	missing := strings.Split(strings.TrimSpace(shown), "\n")
	for len(missing) > 0 && missing[0] != "" {
		line := await.Receive(r.t, r.program.lines)
		at := slices.Index(missing, line)
		if at < 0 {
			r.t.Fatalf("the program prints %q, and the page shows %q\n%s", line, missing, r.program.log.String())
		}
		missing = slices.Delete(missing, at, at+1)
	}
	if !interrupt {
		return
	}
	await.True(r.t, "runs sleep, or are over", func() bool {
		running, err := r.Client.List(r.t.Context(), kagzi.RunFilter{Status: []kagzi.Status{kagzi.StatusRunning}})
		return err == nil && len(running) == 0
	})
	if err := r.program.cmd.Process.Signal(os.Interrupt); err != nil {
		r.t.Fatal(err)
	}
	r.ended()
}

// ended waits until the program in the first terminal has ended, if there is one.
func (r *reader) ended() {
	r.t.Helper()
	if r.program == nil {
		return
	}
	for line, more := await.Receive(r.t, r.program.lines), true; more; line, more = <-r.program.lines {
		if line != "" {
			r.t.Errorf("the program prints %q, which the page does not show", line)
		}
	}
	_ = r.program.cmd.Wait() // the first part is killed
	r.program = nil
}

func (r *reader) kill() {
	if r.program != nil {
		_ = r.program.cmd.Process.Kill()
		_ = r.program.cmd.Wait()
	}
}

// words splits the arguments of a command as a shell does.
func words(arguments string) (all []string) {
	for _, w := range regexp.MustCompile(`'([^']*)'|"([^"]*)"|(\S+)`).FindAllStringSubmatch(arguments, -1) {
		all = append(all, w[1]+w[2]+w[3])
	}
	return all
}

// shows reports whether a command has printed what the page shows.
func shows(shown, printed string) bool {
	pattern := ""
	for line := range strings.SplitSeq(strings.TrimRight(shown, "\n"), "\n") {
		if line == "…" {
			pattern += `(.*\n)*?`
		} else {
			pattern += strings.ReplaceAll(regexp.QuoteMeta(line), "…", ".*") + `\n`
		}
	}
	return regexp.MustCompile(`^` + pattern + `$`).MatchString(strings.TrimRight(printed, "\n") + "\n")
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

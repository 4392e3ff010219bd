package cli_test

import (
	"strings"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
)

// nowhere is a database that no connection reaches: what it does not prevent was refused before a connection is made.
const nowhere = "postgres://app:hunter2secret@127.0.0.1:1/shop"

func TestBadInputSaysWhatToDo(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		command string
		says    string
	}{
		{"--timeout -1s version", "give a duration, such as 30s"},
		{"--timeout x version", "give a duration, such as 30s"},
		{"runs list --nope", "kagzi runs list --help lists the flags"},
		{"runs list order-42", "write kagzi runs list"},
		{"runs list --status done", "give one or more of pending, running"},
		{"runs list --since yesterday", "give a duration such as 1h or 7d, a date such as 2026-10-01, or a time"},
		{"runs list --until 2026-13-01", "give a duration such as 1h or 7d, a date such as 2026-10-01, or a time"},
		{"runs list --metadata tenant", "write it as name=value"},
		{"runs list --parent 42", "give a run ID, which is a UUID"},
		{"runs list --after 42", "give the run ID of the last run"},
		{"runs list --limit -1", "give a positive number"},
		{"runs count --by colour", "give one or more of status"},
		{"runs count --by started=x", "give a duration, such as started=1h"},
		{"runs count --by kind=1h", "give one or more of status"},
		{"runs list --ended-since soon", "give a duration such as 1h"},
		{"runs get", "RUN is missing: write kagzi runs get RUN"},
		{"runs get a b", `unexpected argument "b"`},
		{"runs get --id a b", "give RUN or --id, not both"},
		{"runs signal --id a b c", "give RUN or --id, not both"},
		{"runs signal a approved/call-7", "approved --for call-7"},
		{"runs steps", "RUN is missing"},
		{"runs log", "RUN is missing"},
		{"runs messages", "RUN is missing"},
		{"runs messages a --limit -1", "give a positive number"},
		{"runs wait", "RUN is missing"},
		{"runs start", "WORKFLOW is missing"},
		{"runs start a --input {", "is not JSON"},
		{"runs start a --version 0", "--version is 0: give a number from 1, or leave it out"},
		{"runs start a --priority 0", "--priority is 0: give a number from 1"},
		{"runs restart a --version 0", "--version is 0: give a number from 1"},
		{"runs fork a --step b --version -1", "--version is -1: give a number from 1"},
		{"completion foo", "kagzi completion has no command \"foo\": "},
		{"help nonsense", "kagzi has no command \"nonsense\""},
		{"help runs nonsense", "kagzi runs has no command \"nonsense\""},
		{"runs list --since 1h --until 2h", "--since is not before --until"},
		{"runs list --ended-since 1h --ended-until 1h", "--ended-since is not before --ended-until"},
		{"runs list --payloads", "--payloads needs --json"},
		{"runs start a --input @/nope", "give a file that exists"},
		{"runs list --limit x", `--limit is "x": give a number` + "\n"},
		{"runs list --timeout soon", `--timeout is "soon": give a duration, such as 30s, 2h or 7d` + "\n"},
		{"runs start a --delay soon", "give a duration, such as 30s"},
		{"runs start a --at soon", "give a duration such as 1h or 7d, a date such as 2026-10-01, or a time"},
		{"runs start a --metadata b", "write it as name=value"},
		{"runs signal a", "SIGNAL is missing"},
		{"runs signal a b --payload {", "is not JSON"},
		{"runs cancel", "no run is given: write kagzi runs cancel RUN, or select runs"},
		{"runs cancel --limit 3", "no run is given"},
		{"runs cancel a --workflow b", "give one of them"},
		{"runs cancel a --id b", "give RUN or --id, not both"},
		{"runs cancel --workflow b", "give --dry-run to see the runs, or --yes to cancel them"},
		{"runs cancel a --grace soon", "give a duration"},
		{"runs cancel --status= --yes", "--status is empty: give a value"},
		{"runs cancel --workflow= --yes", "--workflow is empty: give a value"},
		{"runs cancel --queue= --yes", "--queue is empty: give a value"},
		{"runs cancel --parent= --yes", "--parent is empty: give a value"},
		{"runs cancel --schedule= --yes", "--schedule is empty: give a value"},
		{"runs cancel --key= --yes", "--key is empty: give a value"},
		{"runs cancel --group= --yes", "--group is empty: give a value"},
		{"runs cancel --kind= --yes", "--kind is empty: give a value"},
		{"runs cancel --waiting-on= --yes", "--waiting-on is empty: give a value"},
		{"runs cancel --since= --yes", "--since is empty: give a value"},
		{"runs cancel --until= --yes", "--until is empty: give a value"},
		{"runs cancel --ended-since= --yes", "--ended-since is empty: give a value"},
		{"runs cancel --ended-until= --yes", "--ended-until is empty: give a value"},
		{"runs list --workflow=", "--workflow is empty: give a value"},
		{"runs count --kind=", "--kind is empty: give a value"},
		{"runs resume", "no run is given"},
		{"runs terminate", "no run is given"},
		{"runs restart --status failed --input 1", "are for one run"},
		{"runs restart a --input {", "is not JSON"},
		{"runs fork a", "--step is missing"},
		{"runs update a", "there is nothing to change"},
		{"runs update a --set-version x", "give a number from 1, or default"},
		{"runs update a --set-at 1h --set-delay 1h", "exclude each other"},
		{"runs update a --set-metadata b", "write it as name=value"},
		{"runs delete", "no run is given"},
		{"stats a", "unexpected argument"},
		{"runs pause", "RUN is missing"},
		{"runs unpause", "no run is given"},
		{"schedules get", "NAME is missing"},
		{"schedules pause", "NAME is missing"},
		{"schedules resume", "NAME is missing"},
		{"schedules delete", "NAME is missing"},
		{"schedules trigger", "NAME is missing"},
		{"schedules backfill a", "--from is missing"},
		{"schedules backfill a --from soon", "give a duration such as 1h or 7d, a date such as 2026-10-01, or a time"},
		{"schedules next --until 2020-01-01", "is not in the future"},
		{"workers list --status onlin", `--status is "onlin": give one or more of online, draining, offline`},
		{"workers list --label a", "write it as name=value"},
		{"workers get", "WORKER-ID is missing"},
		{"workers log", "WORKER-ID is missing"},
		{"workers drain", "WORKER-ID is missing"},
		{"workers force-offline", "WORKER-ID is missing"},
		{"drain", "--queue is missing"},
		{"drain --queue a", "give --yes"},
		{"queues set", "QUEUE is missing"},
		{"queues set a", "there is nothing to set"},
		{"queues set a --json", "there is nothing to set"},
		{"queues set a --rate 10", "write it as 10/s, 600/m or 5/10s"},
		{"queues set a --rate 10/soon", "write it as 10/s"},
		{"queues set a --max-running -1", "give a positive number"},
		{"keys list", "--queue is missing"},
		{"keys list --queue a --groups", "exclude each other"},
		{"keys list --queue a --order best", "give name, fullest or longest-waiting"},
		{"keys list --queue a --limit 0", "give 1 to 1000"},
		{"keys list --queue a --order fullest --all", "only that order has pages"},
		{"keys set a --max-running 1", "--queue is missing"},
		{"keys set a --queue b", "there is nothing to set"},
		{"limits set", "NAME is missing"},
		{"limits set a", "there is nothing to set"},
		{"limits set a --rate x", "write it as 10/s"},
		{"limits delete", "NAME is missing"},
		{"pause", "give --queue, --workflow"},
		{"pause --all --queue a", "exclude each other"},
		{"pause --key a", "--key needs --queue"},
		{"pause --key a --queue b --workflow c", "exclude each other"},
		{"pause --group a --queue b", "--group stands alone"},
		{"unpause", "give --queue, --workflow"},
		{"pauses a", "kagzi pauses has no command \"a\""},
		{"topics a", "kagzi topics has no command \"a\""},
		{"consumers a", "kagzi consumers has no command \"a\""},
		{"health a", "unexpected argument"},
		{"stuck a", "unexpected argument"},
		{"doctor a", "unexpected argument"},
		{"replay", "RUN is missing"},
		{"top", "needs a terminal"},
		{"top --interval 1ms", "give at least 100ms"},
		{"migrate up a", "unexpected argument"},
		{"migrate sql --from 99", "this program knows versions up to"},
		{"version a", "unexpected argument"},
	} {
		t.Run(test.command, func(t *testing.T) {
			t.Parallel()
			s := &shell{t: t, env: map[string]string{"KAGZI_DATABASE_URL": nowhere}}
			r := s.run(test.command).exits(2).says(test.says)
			if r.out != "" || strings.Count(r.err, "\n") != 1 || !strings.HasPrefix(r.err, "kagzi: ") {
				t.Errorf("kagzi %s prints\n%s\nand says\n%s\nwant one line of stderr", test.command, r.out, r.err)
			}
		})
	}
}

func TestTimesOfFlags(t *testing.T) {
	k, s := newShell(t)
	kit.Begin(k, approve, 1, kagzi.ID("order-1"))
	advice := s.run("runs list --since soon").exits(2).err
	for _, form := range []string{"1h", "7d", "2026-10-01", "2026-10-01 08:00", "2026-10-01T08:00:00Z"} {
		if !strings.Contains(advice, form) {
			t.Errorf("the error of --since does not name the form %q: %s", form, advice)
		}
		s.run("runs list --since", form).ok().prints("order-1")
	}
}

func TestNoDatabaseGiven(t *testing.T) {
	t.Parallel()
	s := &shell{t: t}
	for _, command := range []string{"runs list", "health", "doctor", "migrate up", "top"} {
		s.terminal = 80
		r := s.run(command).exits(2)
		if text := strings.Join(strings.Fields(r.err), " "); !strings.Contains(text,
			"set KAGZI_DATABASE_URL=postgres://user:password@host:5432/database") {
			t.Errorf("kagzi %s says %q", command, text)
		}
	}
}

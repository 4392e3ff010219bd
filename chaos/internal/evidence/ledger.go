package evidence

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// longest is the length of the longest text that Digest leaves as it is.
const longest = 4096

// Digest returns text itself, or a hash of it if it is long. The texts of lines, and the payloads that Load returns,
// are digests: so they can be compared.
func Digest(text string) string {
	if len(text) <= longest {
		return text
	}
	return fmt.Sprintf("%d bytes, SHA-256 %x", len(text), sha256.Sum256([]byte(text)))
}

// A Ledger is the file in which a worker process says what it does. Each line is one write(2) to a file opened for
// appending, so it stays when the process is killed. A Ledger is safe for concurrent use.
type Ledger struct {
	file   *os.File
	worker string
}

// OpenLedger opens the ledger of a worker process, and makes the file if there is none.
func OpenLedger(path, worker string) (*Ledger, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	return &Ledger{file: f, worker: worker}, nil
}

// Write appends a line. The ledger sets its time and its worker. Write panics if the line cannot be written, because
// without it the checker would accuse the innocent.
func (l *Ledger) Write(line Line) {
	line.At, line.Worker, line.Detail = Now(), l.worker, Digest(line.Detail)
	if _, err := l.file.WriteString(encode(line)); err != nil {
		panic(fmt.Sprintf("write the ledger: %v", err))
	}
}

// Close closes the file.
func (l *Ledger) Close() error { return l.file.Close() }

// escape makes a text one field of a line, and unescape reverses it.
var (
	escape   = strings.NewReplacer(`\`, `\\`, "\t", `\t`, "\n", `\n`, "\r", `\r`)
	unescape = strings.NewReplacer(`\\`, `\`, `\t`, "\t", `\n`, "\n", `\r`, "\r")
)

func encode(l Line) string {
	fields := []string{
		strconv.FormatInt(int64(l.At), 10), l.Worker, l.Event, l.Run, l.Step, strconv.Itoa(l.Attempt),
		l.Lease, l.Detail,
	}
	for i, f := range fields {
		fields[i] = escape.Replace(f)
	}
	return strings.Join(fields, "\t") + "\n"
}

func decode(text string) (Line, error) {
	f := strings.Split(text, "\t")
	if len(f) != 8 {
		return Line{}, fmt.Errorf("a line of the ledger has %d fields instead of 8: %q", len(f), text)
	}
	at, err := strconv.ParseInt(f[0], 10, 64)
	if err != nil {
		return Line{}, err
	}
	attempt, err := strconv.Atoi(f[5])
	if err != nil {
		return Line{}, err
	}
	for i := range f {
		f[i] = unescape.Replace(f[i])
	}
	return Line{
		At: time.Duration(at), Worker: f[1], Event: f[2], Run: f[3], Step: f[4], Attempt: attempt, Lease: f[6],
		Detail: f[7],
	}, nil
}

// ReadLedgers returns the lines of all ledgers in a directory, by time. The ledgers are the files whose name ends with
// ".ledger".
func ReadLedgers(dir string) (lines []Line, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.ledger"))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		some, err := readLedger(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Base(path), err)
		}
		lines = append(lines, some...)
	}
	slices.SortStableFunc(lines, func(a, b Line) int { return cmp.Compare(a.At, b.At) })
	return lines, nil
}

func readLedger(path string) (lines []Line, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for r := bufio.NewReader(f); ; {
		text, err := r.ReadString('\n')
		if errors.Is(err, io.EOF) { // a line without an end is that of a process that was killed as it wrote it
			return lines, nil
		}
		if err != nil {
			return nil, err
		}
		line, err := decode(strings.TrimSuffix(text, "\n"))
		if err != nil {
			return nil, err
		}
		lines = append(lines, line)
	}
}

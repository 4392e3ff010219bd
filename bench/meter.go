package main

import (
	"bytes"
	"context"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

var nan = math.NaN()

// A cost is what a measurement took, from its begin to its end.
type cost struct {
	Runs       int
	Wall       time.Duration
	Server     float64 // processor seconds of Postgres, all its processes included
	Client     float64 // processor seconds of the engine: this process and its children
	Others     float64 // processors that other processes used or others stole; NaN where /proc does not tell
	Statements int64
	Commits    int64
	WAL        int64 // bytes
}

// A reading is the state of all counters at one moment.
type reading struct {
	at                       time.Time
	machine, server, client  float64
	known                    bool // the three times above are
	statements, commits, wal int64
}

func (r reading) since(before reading, runs int) cost {
	c := cost{
		Runs: runs, Wall: r.at.Sub(before.at), Server: nan, Client: nan, Others: nan,
		Statements: r.statements - before.statements, Commits: r.commits - before.commits, WAL: r.wal - before.wal,
	}
	if r.known && before.known {
		c.Server, c.Client = r.server-before.server, r.client-before.client
		c.Others = max(0, (r.machine-before.machine-c.Server-c.Client)/c.Wall.Seconds())
	}
	return c
}

// quiesced returns once no session is connected to the database: a server process reports its commits at its end.
func quiesced(ctx context.Context, admin *pgxpool.Pool, database string) error {
	for {
		var n int
		err := admin.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity WHERE datname = $1
			AND backend_type = 'client backend'`, database).Scan(&n)
		if err != nil || n == 0 {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// ticks is Linux's USER_HZ, the unit of processor times in /proc.
const ticks = 100

// kernelThreads is the process whose children are the kernel's threads. They mostly write what the server has written.
const kernelThreads = 2

// processorSeconds returns what the machine, except for the kernel's threads, the server and this benchmark have used
// so far.
func processorSeconds(server int) (machine, servers, client float64, ok bool) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0, 0, false
	}
	line, _, _ := strings.Cut(string(stat), "\n")
	fields := strings.Fields(line) // cpu user nice system idle iowait irq softirq steal
	if len(fields) < 9 {
		return 0, 0, 0, false
	}
	for _, i := range []int{1, 2, 3, 8} {
		machine += number(fields[i]) / ticks
	}
	processes := readProcesses()
	servers = processes.tree(server) / ticks
	client = processes.tree(os.Getpid())/ticks - servers
	return machine - processes.tree(kernelThreads)/ticks, servers, client, true
}

type process struct {
	id    int
	ticks float64 // used by itself, and by its children that have ended
}

// processes are the machine's processes by their parent.
type processes map[int][]process

func readProcesses() processes {
	all := processes{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		id, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // it has ended
		}
		// The name, in parentheses, may contain spaces.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) < 15 {
			continue
		}
		p := process{id: id}
		for _, f := range fields[11:15] { // utime stime cutime cstime
			p.ticks += number(f)
		}
		parent := int(number(fields[1]))
		all[parent] = append(all[parent], p)
	}
	return all
}

// tree returns what the process and its descendants have used.
func (all processes) tree(root int) float64 {
	sum := 0.0
	for parent, children := range all {
		for _, p := range children {
			if p.id == root || parent == root {
				sum += p.ticks
			}
			if parent == root {
				sum += all.tree(p.id) - p.ticks
			}
		}
	}
	return sum
}

func number(s string) float64 {
	f, _ := strconv.ParseFloat(s, 64)
	return f
}

// residentBytes returns the memory of a process that is in RAM, or NaN where /proc does not tell.
func residentBytes(process int) float64 {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(process) + "/statm")
	fields := strings.Fields(string(status))
	if err != nil || len(fields) < 2 {
		return nan
	}
	return number(fields[1]) * float64(os.Getpagesize())
}

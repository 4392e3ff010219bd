package kit

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// A CPUMeter measures the processor time of this process and of the server. Other load of the machine changes it less
// than it changes the time by the clock. It works on Linux only.
type CPUMeter struct {
	postmaster string // its process ID, "" if it cannot be found
	before     float64
	ownBefore  float64 // of before, this process's part
}

// NewCPUMeter begins to measure the server of the pool.
func NewCPUMeter(b *testing.B, pool *pgxpool.Pool) *CPUMeter {
	b.Helper()
	var backend int
	if err := pool.QueryRow(b.Context(), "SELECT pg_backend_pid()").Scan(&backend); err != nil {
		b.Fatal(err)
	}
	m := &CPUMeter{}
	if stat := processStat(filepath.Join("/proc", strconv.Itoa(backend), "stat")); stat != nil {
		m.postmaster = stat[1]
		m.before = m.total()
		m.ownBefore = own()
	}
	return m
}

// Report reports the time since NewCPUMeter, for each of n runs.
func (m *CPUMeter) Report(b *testing.B, n int) {
	if s := m.Seconds(); s > 0 {
		b.ReportMetric(s*1e6/float64(n), "cpu-us/run")
	}
}

// ReportOwn reports the time of this process alone since NewCPUMeter, for each of n runs.
func (m *CPUMeter) ReportOwn(b *testing.B, n int) {
	if m.postmaster != "" {
		b.ReportMetric((own()-m.ownBefore)*1e6/float64(n), "own-cpu-us/run")
	}
}

// Seconds returns the processor time used since NewCPUMeter, or zero if the server's processes cannot be seen.
func (m *CPUMeter) Seconds() float64 {
	if m.postmaster == "" {
		return 0
	}
	return m.total() - m.before
}

// total returns the processor time used so far. What a process of the server has used is added to its parent's time
// when it ends.
func (m *CPUMeter) total() (s float64) {
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range all {
		stat := processStat(file)
		pid := filepath.Base(filepath.Dir(file))
		if stat == nil || pid != m.postmaster && pid != strconv.Itoa(os.Getpid()) && stat[1] != m.postmaster {
			continue
		}
		used := stat[11:13] // by itself, in user and system mode
		if pid == m.postmaster {
			used = stat[11:15] // and by children that have ended
		}
		s += seconds(used)
	}
	return s
}

// own returns the processor time that this process has used so far.
func own() float64 {
	if stat := processStat("/proc/self/stat"); stat != nil {
		return seconds(stat[11:13])
	}
	return 0
}

// seconds adds up times in ticks.
func seconds(used []string) (s float64) {
	for _, ticks := range used {
		n, _ := strconv.Atoi(ticks)
		s += float64(n) / 100
	}
	return s
}

// processStat returns the fields of a process after its name, or nil if it has ended: its state, its parent and so on.
func processStat(file string) []string {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	_, after, _ := strings.Cut(string(text), ") ")
	return strings.Fields(after)
}

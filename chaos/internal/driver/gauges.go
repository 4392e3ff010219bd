package driver

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/chaos/internal/fleet"
)

// Gauges are sizes that must stay bounded, sampled in a soak: goroutines and memory of the workers, connections,
// dead tuples, and the sizes of tables.
type gauges struct {
	pool   *pgxpool.Pool
	places []*fleet.Place

	mu     sync.Mutex
	series map[string][]float64
}

// Sizes are those of the tables with their indexes; of an idle database they stay, because VACUUM frees no file.
const gauged = `
	SELECT 'dead tuples of ' || relname, n_dead_tup::float8 FROM pg_stat_user_tables WHERE schemaname = 'kagzi'
	UNION ALL SELECT 'size of ' || relname, pg_total_relation_size(relid)::float8 FROM pg_stat_user_tables
		WHERE schemaname = 'kagzi'
	UNION ALL SELECT 'connections', count(*)::float8 FROM pg_stat_activity WHERE backend_type = 'client backend'
	UNION ALL SELECT 'locks', count(*)::float8 FROM pg_locks`

// run samples until ctx ends.
func (g *gauges) run(ctx context.Context, every time.Duration) {
	for sleep(ctx, every) {
		g.sample(ctx)
	}
}

func (g *gauges) sample(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	now := map[string]float64{}
	rows, err := g.pool.Query(ctx, gauged)
	if err == nil {
		for rows.Next() {
			var name string
			var v float64
			if err = rows.Scan(&name, &v); err == nil {
				now[name] = v
			}
		}
		rows.Close()
	}
	if err != nil || rows.Err() != nil {
		return // the server is away
	}
	for _, place := range g.places {
		if p := place.Process(); p != nil && p.Alive() {
			var goroutines, heap float64
			if text, err := os.ReadFile(p.Gauges()); err == nil {
				if _, err := fmt.Sscan(string(text), &goroutines, &heap); err == nil {
					now[fmt.Sprintf("goroutines of worker %d", place.Number)] = goroutines
					now[fmt.Sprintf("heap of worker %d", place.Number)] = heap
				}
			}
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.series == nil {
		g.series = map[string][]float64{}
	}
	for name, v := range now {
		g.series[name] = append(g.series[name], v)
	}
}

// slopes returns the gauges that grow.
func (g *gauges) slopes() (growing []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for name, series := range g.series {
		if from, to, grows := slope(series, floorOf(name)); grows {
			growing = append(growing, fmt.Sprintf("%s has grown from at most %.0f to at least %.0f", name, from, to))
		}
	}
	slices.Sort(growing)
	return growing
}

// floorOf returns the growth that is too small to matter.
func floorOf(name string) float64 {
	switch {
	case strings.HasPrefix(name, "size"), strings.HasPrefix(name, "heap"):
		return 32 << 20
	case strings.HasPrefix(name, "dead"):
		return 20_000
	case strings.HasPrefix(name, "goroutines"):
		return 100
	default:
		return 40
	}
}

// leastSamples is how many samples a slope needs.
const leastSamples = 24

// slope reports whether a series grows: after the first quarter, in which everything fills up, the least value of the
// last third is a fifth above the greatest value of the first, and more than floor above it. Peaks, and sawteeth of any
// height, are no growth.
func slope(series []float64, floor float64) (from, to float64, grows bool) {
	if len(series) < leastSamples {
		return 0, 0, false
	}
	rest := series[len(series)/4:]
	third := len(rest) / 3
	from, to = slices.Max(rest[:third]), slices.Min(rest[len(rest)-third:])
	return from, to, to > 1.2*from && to > from+floor
}

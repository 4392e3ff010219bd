package names_test

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
)

// free are places for texts, and places that a call does not use. Each says why. A place with a method counts for that
// alone.
var free = map[string]string{
	"Actor":               "a text: control characters are replaced, and the rest behind 1 KiB is cut",
	"Reason":              "the same",
	"AuditFilter.Actor":   "may be longer than a name, and have newlines",
	"MetadataValue":       "a text: only NUL and what is not UTF-8 are refused",
	"HeaderValue":         "the same",
	"Metadata.value":      "the same",
	"Labels.value":        "the same",
	"ErrorText":           "the same",
	"Call.MetadataValue":  "the same",
	"Call.HeaderValue":    "the same",
	"Message.HeaderValue": "the same",
	"Consumer.Group":      "only Consume uses the group",
	"Runs.Fork 2 string": "the ID of a step, which has the names of its branches before it, may be longer " +
		"than a name",
	"Runs.ForkAll 2 string":   "the same",
	"Forget":                  "the same",
	"StepFilter.Steps.string": "the same",
}

// isFree reports whether a call may go through with a bad name in this place.
func isFree(what, place string) bool {
	if free[what] != "" {
		return true
	}
	for known := range free {
		if strings.HasSuffix(place, known) {
			return true
		}
	}
	return false
}

// sent counts the statements that a pool sends.
type sent struct{ n atomic.Int64 }

func (s *sent) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	s.n.Add(1)
	return ctx
}
func (*sent) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (s *sent) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	s.n.Add(1)
	return ctx
}
func (*sent) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*sent) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// traced returns a client that counts its statements.
func traced(t *testing.T, db *dbtest.DB) (*kagzi.Client, *sent) {
	t.Helper()
	counter := &sent{}
	pool := dbtest.OpenPool(t, db.DSN, func(cfg *pgxpool.Config) { cfg.ConnConfig.Tracer = counter })
	c := kit.NewClient(t, pool)
	if _, err := c.List(t.Context(), kagzi.RunFilter{}); err != nil { // checks the schema
		t.Fatal(err)
	}
	return c, counter
}

// each calls do for each method of the Clients and each place of its parameters that can have a name.
func each(c *kagzi.Client, s string, do func(what, place string, call func() error)) {
	for name, method := range kit.Methods(c) {
		signature := method.Type()
		for p := range signature.NumIn() {
			of := signature.In(p)
			var b reflect.Value
			if of.Kind() != reflect.Slice || !signature.IsVariadic() || p < signature.NumIn()-1 {
				b = base(of)
			}
			for _, variant := range variants(of, b, s) {
				var in []reflect.Value
				for q := range signature.NumIn() {
					switch {
					case q == p:
						in = append(in, variant.value)
					case signature.IsVariadic() && q == signature.NumIn()-1:
						in = append(in, reflect.Zero(signature.In(q)))
					default:
						in = append(in, base(signature.In(q)))
					}
				}
				do(fmt.Sprintf("%s %d %s", name, p, variant.place), variant.place, func() error {
					call := method.Call
					if signature.IsVariadic() {
						call = method.CallSlice
					}
					out := call(in)
					err, _ := out[len(out)-1].Interface().(error)
					return err
				})
			}
		}
	}
}

// prepare makes what base values name, unless it is there, or the call only reads.
func prepare(t *testing.T, c *kagzi.Client, call string) {
	t.Helper()
	for _, reads := range []string{
		"List", "Get", "Audit", "Runs.Count", "Schedules.List", "Schedules.Get", "Schedules.NextFires",
		"Limits.List", "Keys.List", "Workers.List", "Workers.Get", "Workers.Log", "Workers.DrainQueue",
	} {
		if strings.HasPrefix(call, reads) {
			return
		}
	}
	if _, err := c.StartMany(t.Context(), []kagzi.Call{work.With(1, kagzi.ID("base"))}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.New(c).Schedules.Get(t.Context(), "base"); err == nil {
		return
	}
	for _, err := range []error{
		c.Schedule(t.Context(), kagzi.Schedule{Name: "base", Cron: "0 0 * * *", Run: work.With(1)}),
		admin.New(c).Limits.Set(t.Context(), admin.StepLimit{Name: "base", MaxRunning: 1}),
		admin.New(c).Queues.Set(t.Context(), admin.QueueLimits{
			Queue: "base", MaxRunning: 1,
			EachKey: admin.KeyLimits{MaxRunning: 1},
		}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestRefusedNamesOfClients(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c, sent := traced(t, db)
	prepare(t, c, "")
	places := map[string]bool{}
	for name, s := range refused {
		each(c, s, func(what, place string, call func() error) {
			places[what] = true
			if isFree(what, place) {
				// such a call does all that it is for
				if !slices.Contains([]string{"NUL", "not UTF-8", "newline", "10 kB"}, name) {
					return
				}
				prepare(t, c, what)
				wantHarmless(t, what+", "+name, call())
				return
			}
			before := sent.n.Load()
			wantRefusal(t, what+", "+name, call())
			if n := sent.n.Load() - before; n != 0 {
				t.Errorf("%s, %s: %d statements are sent", what, name, n)
			}
		})
	}
	t.Logf("%d places: %v", len(places), slices.Sorted(maps.Keys(places)))
}

// Each call takes each odd name in each place: the database refuses none.
func TestAllowedNamesOfClients(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c, _ := traced(t, db)
	for _, s := range composites() {
		each(c, s, func(what, _ string, call func() error) {
			prepare(t, c, what)
			if strings.HasPrefix(what, "Wait ") { // no worker ends the run that has the name
				active := kagzi.RunFilter{Status: []kagzi.Status{kagzi.StatusPending}}
				if _, err := admin.New(c).Runs.TerminateAll(t.Context(), active); err != nil {
					t.Fatal(err)
				}
			}
			wantHarmless(t, fmt.Sprintf("%s, %q", what, s), call())
		})
	}
}

// composites returns the allowed names in a few, which are as long as names may be.
func composites() (all []string) {
	for _, name := range slices.Sorted(maps.Keys(allowed)) {
		s := allowed[name]
		if n := len(all); n > 0 && len(all[n-1])+len(s) <= 255 {
			all[n-1] += s
		} else {
			all = append(all, s)
		}
	}
	return all
}

package names_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/topic"
)

// Bad names in configurations, of handlers and of consumers are refused by the constructor, or by Run before it sends
// anything.
func TestRefusedNamesOfConstructors(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c, sent := traced(t, db)
	run := func(cfg kagzi.WorkerConfig, register func(*kagzi.Worker)) error {
		w, err := kagzi.NewWorker(c, cfg)
		if err != nil {
			return err
		}
		kagzi.Handle(w, work, echo)
		register(w)
		return w.Run(t.Context())
	}
	places := 0
	for name, s := range refused {
		calls := map[string]func() error{
			"Handle": func() error {
				return run(kagzi.WorkerConfig{}, func(w *kagzi.Worker) {
					kagzi.Handle(w, kagzi.Define[int, int](s), echo)
				})
			},
			"Consume": func() error {
				return run(kagzi.WorkerConfig{}, func(w *kagzi.Worker) {
					topic.Consume(w, consumer(s, topic.ConsumerConfig{}), echo)
				})
			},
		}
		for _, v := range variants(reflect.TypeFor[kagzi.WorkerConfig](), reflect.Value{}, s) {
			calls[v.place] = func() error {
				return run(v.value.Interface().(kagzi.WorkerConfig), func(*kagzi.Worker) {})
			}
		}
		for _, v := range variants(reflect.TypeFor[topic.ConsumerConfig](), reflect.Value{}, s) {
			calls[v.place] = func() error {
				return run(kagzi.WorkerConfig{}, func(w *kagzi.Worker) {
					topic.Consume(w, consumer("c", v.value.Interface().(topic.ConsumerConfig)), echo)
				})
			}
		}
		for _, v := range variants(reflect.TypeFor[kagzi.ClientConfig](), reflect.Value{}, s) {
			calls[v.place] = func() error {
				_, err := kagzi.NewClient(db.Pool, v.value.Interface().(kagzi.ClientConfig))
				return err
			}
		}
		for place, call := range calls {
			if isFree(place, place) && utf8.ValidString(s) && !strings.Contains(s, "\x00") {
				continue
			}
			places++
			before := sent.n.Load()
			wantRefusal(t, place+", "+name, call())
			if n := sent.n.Load() - before; n != 0 {
				t.Errorf("%s, %s: %d statements are sent", place, name, n)
			}
		}
	}
	if places < 80 {
		t.Errorf("INVALID: %d places", places)
	}
}

// nameless are the options that take no name.
var nameless = []string{
	"At", "Delay", "ExecutionTimeout", "Grace", "OncePer", "Priority", "RetryPolicy", "StartWithin", "Timeout",
	"Version", "detached", "inTx",
	"inheritMetadata", "dryRun", "park", "inheritCompensations",
	"newInput", "atMostOnce", "reconcile", "repeatable", "stepInput", "undoneBy", "Concurrency", "collectErrors",
	"defaultVersion",
	"allowAdditions", "consumes", "startsOn", "batches",
}

// The table of options has each that takes a name.
func TestEveryOptionIsInTheTable(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, o := range options("x") {
		known[reflect.TypeOf(o).Name()] = true
	}
	found := map[string]bool{}
	for _, name := range sources(t) {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv == nil || !setsItself(f) {
				continue
			}
			if of, ok := f.Recv.List[0].Type.(*ast.Ident); ok {
				found[of.Name] = true
				if !known[of.Name] && !slices.Contains(nameless, of.Name) {
					t.Errorf("the option %s is in no table: does it take a name?", of.Name)
				}
			}
		}
	}
	if len(found) < 30 {
		t.Errorf("INVALID: only %d options were found", len(found))
	}
}

// setsItself reports whether f is the method by which an option sets itself: start(*startConfig) of a StartOption,
// Change(*core.ChangeConfig) of a ChangeOption, and so on.
func setsItself(f *ast.FuncDecl) bool {
	if f.Type.Params.NumFields() != 1 {
		return false
	}
	to, _ := f.Type.Params.List[0].Type.(*ast.StarExpr)
	if to == nil {
		return false
	}
	if cfg, ok := to.X.(*ast.SelectorExpr); ok { // core.ChangeConfig
		return cfg.Sel.Name == f.Name.Name+"Config"
	}
	cfg, _ := to.X.(*ast.Ident)
	return cfg != nil && cfg.Name == f.Name.Name+"Config"
}

// sources returns the files of the packages for users.
func sources(t *testing.T) (all []string) {
	t.Helper()
	for _, folder := range []string{"../../", "../../admin/", "../../topic/"} {
		files, err := filepath.Glob(folder + "*.go")
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, files...)
	}
	return all
}

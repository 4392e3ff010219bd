package sources_test

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"github.com/kagzi/kagzi/internal/source"
)

// An analysis follows the texts of statements back to constants. Functions, parameters and fields have keys that are
// the same in every package that uses them.
type analysis struct {
	fset     *token.FileSet
	packages []*source.Package

	functions map[string]*function // by key
	values    map[string][]value   // by the key of a variable or field: all that it is ever given
	params    map[string]param     // by the key of a parameter
	// by the key of a function or of a variable that holds one: which arguments become SQL
	sinks     map[string]map[int]bool
	checked   map[ast.Expr]bool  // verdicts; a cycle counts as constant
	uses      map[string][]use   // by the key of the function called
	mentioned map[string][]value // by the key of a function: where it is a value
	found     map[token.Pos]finding
	calls     int
}

// A value is an expression in a function.
type value struct {
	p  *source.Package
	in string // the key of the function; the package's path outside of functions
	e  ast.Expr
}

type function struct {
	returns []value
}

// A param is a parameter of a function. Programs of others give it a value if the function is exported.
type param struct {
	of       string
	at       int
	name     *ast.Ident
	exported bool
}

type use struct {
	p    *source.Package
	in   string
	call *ast.CallExpr
}

func newAnalysis(tree *source.Tree, packages []*source.Package) *analysis {
	a := &analysis{
		fset: tree.Fset, packages: packages, functions: map[string]*function{}, values: map[string][]value{},
		params: map[string]param{},
		sinks:  map[string]map[int]bool{}, checked: map[ast.Expr]bool{}, uses: map[string][]use{},
		mentioned: map[string][]value{}, found: map[token.Pos]finding{},
	}
	for _, p := range packages {
		for _, file := range p.Files {
			for _, d := range file.Syntax.Decls {
				if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
					key := p.Info.Defs[f.Name].(*types.Func).FullName()
					a.declare(p, key, f.Type, isPublic(p, f))
					a.walk(p, key, f.Body)
				} else {
					a.walk(p, p.Path(), d)
				}
			}
		}
	}
	return a
}

// declare learns the parameters of a function, and that it exists.
func (a *analysis) declare(p *source.Package, key string, f *ast.FuncType, public bool) {
	a.functions[key] = &function{}
	at := 0
	for _, field := range f.Params.List {
		for _, name := range field.Names {
			a.params[a.key(p.Info.Defs[name])] = param{key, at, name, public}
			at++
		}
		if len(field.Names) == 0 {
			at++
		}
	}
}

// key identifies a variable, a field or a function.
func (a *analysis) key(o types.Object) string {
	switch o := o.(type) {
	case nil:
		return ""
	case *types.Func:
		return o.Origin().FullName()
	case *types.Var:
		o = o.Origin()
		if o.IsField() || o.Parent() != nil && o.Pkg() != nil && o.Parent() == o.Pkg().Scope() {
			at := a.fset.Position(o.Pos())
			return o.Pkg().Path() + " " + o.Name() + " " + at.Filename[max(0, len(at.Filename)-20):] + " " +
				itoa(at.Line)
		}
	}
	return a.fset.Position(o.Pos()).String()
}

// walk learns what variables and fields are given, what functions return, and who calls what, in a function or outside
// of any.
func (a *analysis) walk(p *source.Package, in string, n ast.Node) {
	called := map[*ast.Ident]bool{}
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			key := a.fset.Position(n.Pos()).String()
			a.declare(p, key, n.Type, false)
			a.walk(p, key, n.Body)
			return false
		case *ast.ReturnStmt:
			if f := a.functions[in]; f != nil && len(n.Results) > 0 {
				f.returns = append(f.returns, value{p, in, n.Results[0]})
			}
		case *ast.CallExpr:
			a.call(p, in, n)
			called[nameOf(n.Fun)] = true
		case *ast.AssignStmt:
			if len(n.Lhs) == len(n.Rhs) {
				for i := range n.Lhs {
					a.gives(p, in, n.Lhs[i], n.Rhs[i])
				}
			} else {
				a.gives(p, in, n.Lhs[0], n.Rhs[0])
			}
		case *ast.ValueSpec:
			for i := range n.Values {
				a.gives(p, in, n.Names[i], n.Values[i])
			}
		case *ast.RangeStmt:
			if n.Value != nil {
				a.gives(p, in, n.Value, n.X)
			}
		case *ast.CompositeLit:
			a.literal(p, in, n)
		case *ast.Ident:
			if f, ok := p.Info.Uses[n].(*types.Func); ok && !called[n] {
				a.mentioned[a.key(f)] = append(a.mentioned[a.key(f)], value{p, in, n})
			}
		}
		return true
	})
}

// gives learns that a variable or field is given a value.
func (a *analysis) gives(p *source.Package, in string, to, v ast.Expr) {
	if key := a.place(p, to); key != "" {
		a.values[key] = append(a.values[key], value{p, in, v})
	}
}

// place returns the key of the variable, field or element that an expression denotes. Those of a slice or map share its
// key.
func (a *analysis) place(p *source.Package, e ast.Expr) string {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		if o := p.Info.Defs[e]; o != nil {
			return a.key(o)
		}
		return a.key(p.Info.Uses[e])
	case *ast.SelectorExpr:
		return a.key(p.Info.Uses[e.Sel])
	case *ast.IndexExpr:
		return a.place(p, e.X)
	}
	return ""
}

// literal learns what a literal gives to its fields.
func (a *analysis) literal(p *source.Package, in string, n *ast.CompositeLit) {
	of := p.Info.Types[n].Type.Underlying()
	if pointer, ok := of.(*types.Pointer); ok {
		of = pointer.Elem().Underlying()
	}
	fields, ok := of.(*types.Struct)
	if !ok {
		return
	}
	for i, element := range n.Elts {
		if pair, ok := element.(*ast.KeyValueExpr); ok {
			a.gives(p, in, pair.Key, pair.Value)
		} else if key := a.key(fields.Field(i)); key != "" {
			a.values[key] = append(a.values[key], value{p, in, element})
		}
	}
}

// call learns of a call. Those that send SQL are counted.
func (a *analysis) call(p *source.Package, in string, call *ast.CallExpr) {
	f := p.Callee(call)
	if f == nil {
		if key := a.place(p, call.Fun); key != "" { // of a variable with a function
			a.uses[key] = append(a.uses[key], use{p, in, call})
		}
		return
	}
	key := a.key(f)
	a.uses[key] = append(a.uses[key], use{p, in, call})
	if at := sqlIndex(f); at >= 0 {
		a.calls++
		a.sink(key, at)
	}
}

// sink learns that an argument of a function becomes SQL. It reports whether that is new.
func (a *analysis) sink(key string, at int) bool {
	if a.sinks[key] == nil {
		a.sinks[key] = map[int]bool{}
	}
	is := a.sinks[key][at]
	a.sinks[key][at] = true
	return !is
}

// run checks the SQL that is sent, and then the arguments of functions whose parameters turn out to be sent, until
// there are no new ones.
func (a *analysis) run() (all []finding) {
	for key, values := range a.values {
		// of pgx.TxOptions
		if strings.HasPrefix(key, "github.com/jackc/pgx/v5 BeginQuery ") ||
			strings.HasPrefix(key, "github.com/jackc/pgx/v5 CommitQuery ") {
			for _, v := range values {
				a.expect(v)
			}
		}
	}
	done := map[string]map[int]bool{}
	for more := true; more; {
		more = false
		for key, indexes := range a.sinks {
			for at := range indexes {
				if done[key][at] {
					continue
				}
				if done[key] == nil {
					done[key] = map[int]bool{}
				}
				done[key][at], more = true, true
				for _, v := range a.mentioned[key] {
					a.add(v.e.Pos(), v.in, types.ExprString(v.e))
				}
				for _, u := range a.uses[key] {
					if at < len(u.call.Args) {
						a.expect(value{u.p, u.in, u.call.Args[at]})
					}
				}
			}
		}
	}
	for _, f := range a.found {
		all = append(all, f)
	}
	slices.SortFunc(all, func(x, y finding) int { return slices.Compare([]string{x.position}, []string{y.position}) })
	return all
}

// expect adds a finding unless v is made of constants.
func (a *analysis) expect(v value) {
	if !a.constant(v) {
		a.add(v.e.Pos(), v.in, types.ExprString(v.e))
	}
}

func (a *analysis) add(pos token.Pos, in, text string) {
	a.found[pos] = finding{a.fset.Position(pos).String(), in, text}
}

// isPublic reports whether programs of others can call a function.
func isPublic(p *source.Package, f *ast.FuncDecl) bool {
	if !f.Name.IsExported() || strings.Contains(p.Path()+"/", "/internal/") {
		return false
	}
	if f.Recv == nil {
		return true
	}
	of := f.Recv.List[0].Type
	if pointer, ok := of.(*ast.StarExpr); ok {
		of = pointer.X
	}
	name, ok := of.(*ast.Ident)
	return !ok || name.IsExported()
}

// nameOf returns the last name of the function that is called.
func nameOf(fun ast.Expr) *ast.Ident {
	switch f := ast.Unparen(fun).(type) {
	case *ast.Ident:
		return f
	case *ast.SelectorExpr:
		return f.Sel
	case *ast.IndexExpr:
		return nameOf(f.X)
	case *ast.IndexListExpr:
		return nameOf(f.X)
	}
	return nil
}

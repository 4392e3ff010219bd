package sources_test

import (
	"go/ast"
	"go/token"
	"go/types"
	"strconv"
)

func itoa(n int) string { return strconv.Itoa(n) }

// constant reports whether v is made of constants, or of parameters, whose arguments are then checked, too.
func (a *analysis) constant(v value) (ok bool) {
	if verdict, known := a.checked[v.e]; known {
		return verdict
	}
	a.checked[v.e] = true
	defer func() { a.checked[v.e] = ok }()
	if t := v.p.Info.Types[v.e]; t.Value != nil || isNumber(t.Type) {
		return true
	}
	switch e := ast.Unparen(v.e).(type) {
	case *ast.BinaryExpr:
		return e.Op == token.ADD && a.constant(value{v.p, v.in, e.X}) && a.constant(value{v.p, v.in, e.Y})
	case *ast.Ident:
		return a.constantVariable(v.p.Info.Uses[e])
	case *ast.SelectorExpr:
		return a.constantVariable(v.p.Info.Uses[e.Sel])
	case *ast.IndexExpr:
		return a.constant(value{v.p, v.in, e.X})
	case *ast.CallExpr:
		return a.constantCall(v, e)
	case *ast.CompositeLit:
		return a.constantLiteral(v, e)
	}
	return false
}

func isNumber(t types.Type) bool {
	if t == nil {
		return false
	}
	basic, ok := t.Underlying().(*types.Basic)
	return ok && basic.Info()&(types.IsNumeric|types.IsBoolean) != 0
}

// constantVariable reports whether all that a variable or field is ever given is constant. A parameter is given the
// arguments of calls, which the analysis checks later.
func (a *analysis) constantVariable(o types.Object) bool {
	v, ok := o.(*types.Var)
	if !ok {
		return false
	}
	key := a.key(v)
	given := a.values[key]
	if p, ok := a.params[key]; ok {
		a.sink(p.of, p.at)
		if p.exported {
			a.add(p.name.Pos(), p.of, "parameter "+p.name.Name)
		}
		for variable, values := range a.values { // a function in a variable is called by its name
			for _, v := range values {
				if f, ok := ast.Unparen(v.e).(*ast.FuncLit); ok && a.fset.Position(f.Pos()).String() == p.of {
					a.sink(variable, p.at)
				}
			}
		}
	} else if len(given) == 0 {
		return false
	}
	for _, v := range given {
		if !a.constant(v) {
			return false
		}
	}
	return true
}

// constantLiteral reports whether all elements of a slice, array or map are constant.
func (a *analysis) constantLiteral(v value, e *ast.CompositeLit) bool {
	for _, element := range e.Elts {
		if pair, ok := element.(*ast.KeyValueExpr); ok {
			element = pair.Value
		}
		if !a.constant(value{v.p, v.in, element}) {
			return false
		}
	}
	return true
}

// pure are functions of the standard library whose result has only what their arguments have.
var pure = map[string]bool{
	"strings.ReplaceAll": true, "strings.Replace": true, "strings.TrimSpace": true, "strings.TrimSuffix": true,
	"strings.TrimPrefix": true, "strings.Join": true,
	"strings.ToLower": true, "strings.NewReplacer": true, "(*strings.Replacer).Replace": true, "fmt.Sprintf": true,
	"fmt.Sprint": true, "strings.Repeat": true,
}

// constantCall reports whether the result of a call is constant: that of a pure function of constants, of a function
// that returns constants, or a quoted identifier.
func (a *analysis) constantCall(v value, call *ast.CallExpr) bool {
	f := v.p.Callee(call)
	if f == nil {
		if t := v.p.Info.Types[call.Fun]; t.IsType() && len(call.Args) == 1 { // a conversion
			return a.constant(value{v.p, v.in, call.Args[0]})
		}
		if id, ok := call.Fun.(*ast.Ident); ok && id.Name == "append" {
			for _, arg := range call.Args {
				if !a.constant(value{v.p, v.in, arg}) {
					return false
				}
			}
			return true
		}
		return false
	}
	key := a.key(f)
	if key == "(github.com/jackc/pgx/v5.Identifier).Sanitize" {
		return true
	}
	if pure[key] {
		if method, ok := call.Fun.(*ast.SelectorExpr); ok && f.Signature().Recv() != nil &&
			!a.constant(value{v.p, v.in, method.X}) {
			return false
		}
		for _, arg := range call.Args {
			if !a.constant(value{v.p, v.in, arg}) {
				return false
			}
		}
		return true
	}
	ours := a.functions[key]
	if ours == nil || len(ours.returns) == 0 {
		return false
	}
	for _, r := range ours.returns {
		if !a.constant(r) {
			return false
		}
	}
	return true
}

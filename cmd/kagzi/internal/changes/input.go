package changes

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
	"github.com/kagzi/kagzi/internal/deeds"
)

// An input is the flags of a deed.
type input struct {
	deed   deeds.Deed
	by     command.Cause
	values deeds.Values
	set    *pflag.FlagSet
}

// newInput adds the flags of a deed.
func newInput(d deeds.Deed, fs *pflag.FlagSet) *input {
	in := &input{deed: d, values: deeds.Values{}, set: fs}
	if d.Logged() {
		in.by.Flags(fs)
	}
	for _, f := range d.Fields {
		name := flagOf(f)
		if name == "-" {
			continue
		}
		usage := strings.ToLower(f.Help[:1]) + strings.TrimSuffix(f.Help[1:], ".")
		if many(f) {
			usage += "; may be repeated"
		}
		if f.One {
			usage += "; one run only"
		}
		if f.Kind == deeds.JSON {
			usage += "; @FILE reads a file, - standard input"
		}
		flag := fs.VarPF(&value{f, in.values}, name, f.Letter, usage)
		if f.Kind == deeds.Check {
			flag.NoOptDefVal = "true"
		}
	}
	return in
}

// flagOf returns the flag of a field; "-" if it has none.
func flagOf(f deeds.Field) string {
	if f.Flag == "" {
		return f.Name
	}
	return f.Flag
}

// many reports whether a flag may be given several times.
func many(f deeds.Field) bool { return f.Kind == deeds.Several || f.Kind == deeds.Pairs }

// A value is a flag that fills a field.
type value struct {
	field deeds.Field
	to    deeds.Values
}

// Type is of pflag.Value: what the help calls the value.
func (v *value) Type() string { return v.field.ArgName() }

// String is of pflag.Value. No flag has a default.
func (v *value) String() string { return "" }

// Set is of pflag.Value.
func (v *value) Set(s string) error {
	if v.field.Kind == deeds.Check {
		is, err := strconv.ParseBool(s)
		if err != nil {
			return errors.New("give true or false")
		}
		if s = ""; is {
			s = "1"
		}
	}
	if many(v.field) {
		s, v.to[v.field.Name] = "", append(v.to[v.field.Name], s)
		return nil
	}
	v.to[v.field.Name] = []string{s}
	return nil
}

// asked returns what the deed is asked for with. Values that cannot be are refused before a connection is made.
func (in *input) asked(p *command.Program) (a deeds.Asked, err error) {
	for _, f := range in.deed.Fields {
		if f.Kind == deeds.JSON && in.set.Changed(flagOf(f)) {
			data, err := p.ReadJSON(flagOf(f), in.values[f.Name][0])
			if err != nil {
				return a, err
			}
			in.values[f.Name] = []string{string(data)}
		}
	}
	a = deeds.Asked{
		Values: in.values, Actor: in.by.Actor, Reason: in.by.Reason, Zone: time.Local, Moment: p.Screen.Moment,
		Took: screen.Short, Explained: in.set.Changed("reason") || in.set.Changed("actor"),
	}
	if in.deed.Keeps { // what they need besides may be set already
		return a, in.wrong(in.deed.CheckEach(a))
	}
	return a, in.wrong(in.deed.Check(a))
}

// wrong returns the error for a mistake, which names flags.
func (in *input) wrong(err error) error {
	if m, ok := errors.AsType[*deeds.Mistake](err); ok {
		return command.Usagef("%s", m.In(func(name string) string { return "--" + flagOf(in.deed.Field(name)) }))
	}
	return err
}

// keep fills the fields for which no flag was given with what they are. A rate that is removed leaves no burst.
func (in *input) keep(fields []deeds.Field) {
	for _, f := range fields {
		rate, isBurst := strings.CutSuffix(f.Name, "burst")
		if _, given := in.values[f.Name]; given || f.Value == "" || isBurst && in.values.Get(rate+"rate") == "0" {
			continue
		}
		in.values[f.Name] = []string{f.Value}
	}
}

// empty reports whether no flag but the reason and the actor says what is to be.
func (in *input) empty() bool {
	for _, f := range in.deed.Fields {
		if _, given := in.values[f.Name]; given && !f.About {
			return false
		}
	}
	return true
}
